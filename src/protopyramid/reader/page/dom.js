// Elements of the page. Text is always set as text: nothing that comes from data becomes HTML.

/** An element with a class, a text, attributes (also dataset and listeners) and children. */
export function element(name, kind = "", text = "", ...children) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

export function button(text, act, kind = "") {
  const made = element("button", kind, text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

export function checkbox(checked, label) {
  const made = element("input");
  made.type = "checkbox";
  made.checked = checked;
  made.setAttribute("aria-label", label);
  return made;
}

export function option(value, text) {
  return Object.assign(element("option", "", text), { value });
}

/** Show a text, or hide its place where there is none. */
export function tell(place, text) {
  place.textContent = text;
  place.hidden = !text;
}
