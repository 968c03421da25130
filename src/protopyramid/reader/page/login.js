// The words of the page that asks for the token.

import { words } from "./words.js";

for (const each of document.querySelectorAll("[data-word]")) each.textContent = words.login[each.dataset.word];
