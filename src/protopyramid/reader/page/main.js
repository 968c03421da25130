// The shell: words, theme, navigation between screens, the model, errors and keys.

import { element, option, tell } from "./dom.js";
import { screens } from "./screens.js";
import { listCases, listRuns } from "./server.js";
import { words } from "./words.js";

const $ = (id) => document.getElementById(id);

class App extends EventTarget {
  runs = [];
  cases = [];
  limits = null;
  served = {}; // which of readings and annotations the server was started with
  mounted = {};
  current = null;

  /** The model that is chosen in the header. */
  run() {
    return this.runs[$("run").selectedIndex] ?? this.runs[0];
  }

  /** Offer one more model; the chosen one stays. */
  addRun(run) {
    this.runs.push(run);
    $("run").append(option(run.name, run.name));
    $("run-label").hidden = false;
  }

  fail(error) {
    if (error.name !== "AbortError") tell($("error"), error.message);
  }

  clearError() {
    tell($("error"), "");
  }

  go(name, detail) {
    if (this.current) {
      this.mounted[this.current].hide?.();
      $(this.current).hidden = true;
    }
    this.current = name;
    $(name).hidden = false;
    this.mounted[name] ??= screens[name].mount($(name), this);
    for (const link of $("screens").children) {
      if (link.dataset.screen === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.mounted[name].show?.(detail);
    if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  }
}

const app = new App();

// -- words and theme ----------------------------------------------------------------------------------
for (const each of document.querySelectorAll("[data-word]")) each.textContent = words[each.dataset.word];
for (const each of document.querySelectorAll("[data-word-label]")) {
  each.setAttribute("aria-label", words[each.dataset.wordLabel]);
  if (each.matches("button")) each.title = words[each.dataset.wordLabel];
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}
setTheme(localStorage.getItem("theme") ?? "dark");
$("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

// -- navigation ---------------------------------------------------------------------------------------
for (const name of Object.keys(screens)) {
  const link = element("a", "", words.screenNames[name]);
  link.href = `#${name}`;
  link.dataset.screen = name;
  $("screens").append(link);
  $(name).hidden = true;
}
window.addEventListener("hashchange", () => app.go(screenOf(location.hash)));
const screenOf = (hash) => (Object.hasOwn(screens, hash.slice(1)) ? hash.slice(1) : "lesion");
$("run").addEventListener("change", () => app.dispatchEvent(new Event("run")));

// -- keys ---------------------------------------------------------------------------------------------
function showKeys() {
  const list = [...(app.mounted[app.current].keys ?? []), ...words.commonKeys];
  $("key-list").replaceChildren(
    ...list.flatMap(([key, meaning]) => [element("dt", "", key), element("dd", "", meaning)]),
  );
  $("sheet").showModal();
}
$("help").addEventListener("click", showKeys);
$("close-sheet").addEventListener("click", () => $("sheet").close());

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || !app.current) return;
  if (event.target.matches("select, textarea, input:not([type=checkbox], [type=file], [type=radio])")) return;
  if (event.key === "?") showKeys();
  else if (!app.mounted[app.current].key?.(event)) return;
  event.preventDefault();
});

// -- start --------------------------------------------------------------------------------------------
try {
  const listed = await listRuns();
  Object.assign(app, { runs: listed.runs, limits: listed.limits, served: listed });
  $("run").append(...app.runs.map((each) => option(each.name, each.name)));
  $("run-label").hidden = app.runs.length < 2;
  if (listed.cases) app.cases = (await listCases()).cases;
  app.go(screenOf(location.hash));
  document.body.dataset.ready = "true";
} catch (error) {
  app.fail(error);
}
