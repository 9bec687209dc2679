// Parser of server-sent events from a stream of texts (WHATWG HTML, 9.2.6): EventSource for fetch.

/** Receives pieces of the stream and returns complete events. */
export class EventParser {
  #rest = "";
  #first = true;
  #skipFeed = false; // the previous piece ended in a carriage return
  #data = [];
  #name = "";
  /** Id of the last event; kept for a new stream. */
  lastId = "";

  /** Returns [{name, data, id}] of the events completed by this piece. */
  push(piece) {
    if (this.#first && piece !== "") {
      this.#first = false;
      if (piece.startsWith("\ufeff")) piece = piece.slice(1);
    }
    if (this.#skipFeed && piece.startsWith("\n")) piece = piece.slice(1);
    if (piece !== "") this.#skipFeed = piece.endsWith("\r");
    const lines = (this.#rest + piece).split(/\r\n|\n|\r/);
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line)).filter((event) => event !== null);
  }

  #line(line) {
    if (line === "") return this.#finish();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    if (field === "event") this.#name = value;
    if (field === "id" && !value.includes("\0")) this.lastId = value;
    return null; // a comment begins with a colon: the field is ""
  }

  #finish() {
    const event = { name: this.#name || "message", data: this.#data.join("\n"), id: this.lastId };
    const empty = this.#data.length === 0;
    this.#data = [];
    this.#name = "";
    return empty ? null : event;
  }
}
