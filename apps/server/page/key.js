// Asks for the API key after a 401.

import { connection, key, onKeyNeeded } from "./api.js";
import { at } from "./dom.js";

/** Asks for a key; returns true if given. */
function ask(reason) {
  const dialog = at("key-dialog");
  at("key-reason").textContent = reason;
  at("key").value = "";
  return new Promise((resolve) => {
    let given = false;
    at("key-form").onsubmit = (event) => {
      event.preventDefault();
      given = at("key").value.trim() !== "";
      if (given) key.set(at("key").value.trim());
      dialog.close();
    };
    at("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => {
      at("key").value = "";
      resolve(given);
      if (given) connection.hurry();
    };
    dialog.showModal();
  });
}

export function startKeys() {
  onKeyNeeded(ask);
}
