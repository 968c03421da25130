import { element } from "./dom.js";
import { words } from "./words.js";

export function mount(root) {
  root.append(element("h1", "", words.annotate.title));
  return {};
}
