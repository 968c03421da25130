// Save an edited model as a new run: first what the edit does, then its name.

import { button, element } from "./dom.js";
import { planEdit, saveEdit } from "./server.js";
import { words as all } from "./words.js";

const words = all.edit;
const WAIT = 1000; // milliseconds

/** Ask for a name and save; an edit is { remove: [index, …] } or { weights: { index: { class: weight } } }. */
export async function openEdit(app, run, edit) {
  const dialog = document.getElementById("edit-sheet");
  const effect = element("div", "", "", element("p", "", words.planning));
  const problem = element("p", "problem");
  problem.setAttribute("role", "alert");
  const name = Object.assign(element("input"), { type: "text", value: `${run}-edited`, required: true });
  name.dataset.testid = "edit-name";
  const save = button(words.save, () => write(), "primary");
  save.dataset.testid = "save-edit";
  save.disabled = true;
  const label = element("label", "", `${words.name} `, name);
  const actions = element("div", "actions", "", button(words.cancel, () => dialog.close()), save);
  dialog.replaceChildren(element("h2", "", words.title), effect, label, problem, actions);
  dialog.showModal();
  let saved = false;

  async function write() {
    save.disabled = true;
    problem.textContent = words.saving;
    try {
      const made = await saveEdit(run, { ...edit, name: name.value.trim() });
      app.addRun(made);
      saved = true;
      effect.replaceChildren(element("p", "", words.saved(made.name, made.folder)));
      label.hidden = true;
      problem.textContent = "";
      actions.replaceChildren(button(all.close, () => dialog.close(), "primary"));
    } catch (error) {
      problem.textContent = error.message;
      save.disabled = false;
    }
  }

  plan(dialog, run, edit, effect).then((found) => {
    save.disabled = !found;
  });
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return saved;
}

/** Tell what the edit does; while the server scores images, wait. */
async function plan(dialog, run, edit, place) {
  while (dialog.open) {
    try {
      const found = await planEdit(run, edit);
      place.replaceChildren(...described(found).map((line) => element("p", "", line)));
      return found;
    } catch (error) {
      place.replaceChildren(element("p", "", error.status === 503 ? words.waiting : error.message));
      if (error.status !== 503) return null;
      await new Promise((resolve) => setTimeout(resolve, WAIT));
    }
  }
  return null;
}

function described(found) {
  const lines = [found.by_hand ? words.byHand : words.fitted, words.changes(found.changes.length, found.images)];
  const [before, after] = [found.before?.auroc, found.validation?.auroc];
  if (before !== undefined && before !== null && after !== null) lines.push(words.auroc(before.toFixed(3), after.toFixed(3)));
  lines.push(words.loss(found.loss.before.toFixed(3), found.loss.after.toFixed(3)));
  return lines;
}
