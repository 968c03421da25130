// A reader study: the cases in the reader's own order, each first unaided, then with the model.

import { showAid } from "./readings_aid.js";
import { showResults } from "./readings_results.js";
import { button, element } from "./dom.js";
import { FilmPanel } from "./film_panel.js";
import { answer } from "./server.js";
import { words } from "./words.js";

const post = (path, body) =>
  answer(`/api/readings/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

export function mount(root, app) {
  const said = words.readings;
  const film = new FilmPanel("study-film", said.canvas);
  const panel = element("aside", "study-panel");
  panel.setAttribute("aria-label", said.title);
  const plain = element("div", "study-plain");
  const stage = element("div", "study-stage", "", film.element, panel);
  root.append(plain, stage);
  const state = { study: null, reader: "", due: null, form: null, clock: null };

  function only(part) {
    plain.hidden = part !== plain;
    stage.hidden = part !== stage;
  }

  // -- start, end, results ------------------------------------------------------------------------------
  async function start() {
    only(plain);
    state.clock?.stop();
    state.due = null;
    if (!app.served?.readings) {
      plain.replaceChildren(element("h1", "", said.title), element("p", "", said.notServed), element("code", "", said.command));
      return;
    }
    try {
      state.study = await answer("/api/readings");
      plain.replaceChildren(...startParts());
    } catch (error) {
      app.fail(error);
    }
  }

  function startParts() {
    const name = Object.assign(element("input"), { type: "text", maxLength: 60, required: true, autocomplete: "off" });
    name.dataset.testid = "study-reader";
    const label = element("label", "study-name", said.yourName);
    label.append(name);
    const go = element("button", "primary", said.begin);
    go.dataset.testid = "study-begin";
    const form = element("form", "study-start", "", label, go);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      begin(name.value);
    });
    const steps = element("ol", "", "", ...said.steps(state.study.cases).map((step) => element("li", "", step)));
    const parts = [element("h1", "", said.title), steps, form];
    if (state.study.readers.length) parts.push(element("h2", "", said.goOn), readerList());
    const results = button(said.results, results_);
    results.dataset.testid = "study-results";
    parts.push(element("h2", "", said.forCoordinators), element("p", "small", said.resultsWarning), results);
    return parts;
  }

  function readerList() {
    const list = element("ul", "study-readers");
    for (const { reader, done } of state.study.readers) {
      const go = button(reader, () => begin(reader));
      list.append(element("li", "", "", go, element("span", "small", said.progress(done, state.study.cases))));
    }
    return list;
  }

  async function begin(name) {
    app.clearError();
    try {
      state.reader = (await post("readers", { reader: name })).reader;
      await next();
    } catch (error) {
      app.fail(error);
    }
  }

  function end() {
    only(plain);
    plain.replaceChildren(
      element("h1", "", said.doneTitle),
      element("p", "", said.done(state.study.cases)),
      button(said.back, start),
    );
    plain.querySelector("h1").dataset.testid = "study-done";
  }

  async function results_() {
    try {
      await showResults(plain, start);
    } catch (error) {
      app.fail(error);
    }
  }

  // -- a case ---------------------------------------------------------------------------------------------
  async function next() {
    state.clock?.stop();
    const { due } = await post("open", { reader: state.reader });
    state.due = due;
    if (!due) {
      end();
      return;
    }
    only(stage);
    const sameFilm = film.viewer.film?.id === due.film.id;
    if (!sameFilm) film.viewer.open(due.film, due.film.lesion);
    film.viewer.square = due.explanation?.region ?? null;
    film.viewer.light([]);
    state.form = answerForm(due);
    panel.replaceChildren(...caseParts(due));
    panel.scrollTop = 0;
    panel.querySelector("h1").focus();
    state.clock = visibleClock();
  }

  function caseParts(due) {
    const aided = due.stage === "aided";
    const title = element("h1", "", said.place(due.place, state.study.cases));
    title.dataset.testid = "study-place";
    title.tabIndex = -1;
    const stage_ = element("p", "study-step", aided ? said.aided : said.unaided);
    stage_.dataset.testid = "study-step";
    const parts = [element("p", "small", state.reader), title, stage_];
    if (aided) {
      parts.push(showAid(due.explanation, due.film, film.viewer, state.study.negative_class, app));
      const { margin, confidence, birads } = due.unaided;
      parts.push(element("h2", "", said.yourAnswer), element("p", "small", said.saidAlone(margin, confidence, birads)));
    }
    return [...parts, state.form.element, button(said.pause, start, "study-pause")];
  }

  function answerForm(due) {
    const before = due.unaided;
    const margin = choices(said.margin, "margin", state.study.classes, before?.margin, said.marginKeys);
    const birads = choices(said.birads, "birads", state.study.birads, before?.birads, [], said.biradsMeanings);
    const sure = confidence(before?.confidence);
    const submit = element("button", "primary", due.stage === "aided" ? said.saveAided : said.saveUnaided);
    submit.dataset.testid = "study-save";
    const form = element("form", "study-form", "", margin.element, sure.element, birads.element, submit);
    const missing = () => [margin.value() === null, sure.value() === null, birads.value() === null].some(Boolean);
    const check = () => { submit.disabled = missing(); };
    form.addEventListener("input", check);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      save({ margin: margin.value(), confidence: sure.value(), birads: birads.value() }, submit);
    });
    check();
    return { element: form, margin, check };
  }

  async function save(given, submit) {
    const { place, stage: step } = state.due;
    const seconds = state.clock.seconds();
    submit.disabled = true;
    app.clearError();
    try {
      await post("answers", { reader: state.reader, place, stage: step, ...given, seconds });
      await next();
    } catch (error) {
      submit.disabled = false;
      app.fail(error);
    }
  }

  function key(event) {
    if (stage.hidden) return false;
    const number = Number(event.key);
    if (event.key !== " " && Number.isInteger(number) && state.form?.margin.choose(number - 1)) {
      state.form.check();
      return true;
    }
    return film.key(event);
  }

  return {
    show: () => { if (!state.due) start(); },
    hide: () => { state.clock?.stop(); },
    key,
    keys: [...said.keyList, ...words.filmKeys],
  };
}

/** Seconds that the case was in sight: those in another tab or window do not count. */
function visibleClock() {
  let [total, since] = [0, document.hidden ? null : performance.now()];
  const stop = () => {
    if (since !== null) total += performance.now() - since;
    since = null;
  };
  const changed = () => {
    stop();
    if (!document.hidden) since = performance.now();
  };
  document.addEventListener("visibilitychange", changed);
  return {
    seconds: () => (total + (since === null ? 0 : performance.now() - since)) / 1000,
    stop: () => {
      stop();
      document.removeEventListener("visibilitychange", changed);
    },
  };
}

/** One of several: radio buttons in a named group. */
function choices(title, name, values, chosen, keys = [], meanings = {}) {
  const group = element("fieldset", `choices ${name}`, "", element("legend", "", title));
  const inputs = values.map((value, place) => {
    const input = Object.assign(element("input"), { type: "radio", name: `study-${name}`, value, checked: value === chosen });
    input.dataset.testid = `${name}-${value}`;
    const label = element("label", "choice", "", input, element("span", "", value));
    if (keys[place]) label.append(element("kbd", "", keys[place]));
    if (meanings[value]) label.title = meanings[value];
    group.append(label);
    return input;
  });
  return {
    element: group,
    value: () => inputs.find((each) => each.checked)?.value ?? null,
    choose: (place) => {
      if (!inputs[place]) return false;
      inputs[place].checked = true;
      return true;
    },
  };
}

/** How sure, 0 to 100: without a value until the reader has set one, so that nothing is suggested. */
function confidence(before) {
  const said = words.readings;
  const range = Object.assign(element("input"), { type: "range", min: 0, max: 100, step: 1 });
  range.value = String(before ?? 50);
  range.id = "study-confidence";
  range.dataset.testid = "confidence";
  range.setAttribute("aria-label", said.confidence);
  const shown = element("output", "", before === undefined ? said.notSet : String(before));
  let value = before ?? null;
  const take = () => {
    value = Number(range.value);
    shown.textContent = range.value;
    range.classList.remove("unset");
  };
  range.addEventListener("input", take);
  range.addEventListener("click", () => {
    take();
    range.dispatchEvent(new Event("input", { bubbles: true }));
  });
  if (value === null) range.classList.add("unset");
  const ends = element("div", "study-ends small", "", element("span", "", said.guess), element("span", "", said.certain));
  const legend = element("legend", "", "", document.createTextNode(`${said.confidence} `), shown);
  return { element: element("fieldset", "confidence", "", legend, range, ends), value: () => value };
}
