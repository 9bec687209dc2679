// Texts of a PNG file: the tEXt and iTXt chunks of the PNG specification, 11.3.4.

const kSignature = [137, 80, 78, 71, 13, 10, 26, 10];

const latin1 = (b) => Array.from(b, (byte) => String.fromCharCode(byte)).join("");
const utf8 = (b) => new TextDecoder().decode(b);

function international(body, key) {
  const at = key + 1;
  if (body[at] !== 0) return null; // compressed texts are never written by Tessera
  const language = body.indexOf(0, at + 2);
  const translated = language < 0 ? -1 : body.indexOf(0, language + 1);
  return translated < 0 ? null : utf8(body.subarray(translated + 1));
}

/**
 * Returns the texts of a PNG as a Map of key to text; for a repeated key the first text counts.
 * Throws Error for bytes of another format, or a truncated file.
 */
export function pngTexts(bytes) {
  const data = new Uint8Array(bytes);
  if (data.length < 8 || kSignature.some((byte, i) => data[i] !== byte)) throw new Error("it is no PNG file");
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const texts = new Map();
  for (let at = 8; ; ) {
    if (at + 12 > data.length) throw new Error("the PNG file is cut off");
    const length = view.getUint32(at);
    const kind = latin1(data.subarray(at + 4, at + 8));
    if (kind === "IEND") return texts;
    if (length > data.length - at - 12) throw new Error("the PNG file is cut off");
    const body = data.subarray(at + 8, at + 8 + length);
    const key = body.indexOf(0);
    if ((kind === "tEXt" || kind === "iTXt") && key > 0 && key < 80) {
      const text = kind === "tEXt" ? latin1(body.subarray(key + 1)) : international(body, key);
      const name = latin1(body.subarray(0, key));
      if (text !== null && !texts.has(name)) texts.set(name, text);
    }
    at += 12 + length;
  }
}
