// Save the explanation with what was asked back: a figure made by the server (PNG, PDF), or JSON.
// DICOM results will be one more entry of FORMATS.

import { button } from "./dom.js";
import { ranked, scoresWith, shares } from "./scores.js";
import { explanationFile } from "./server.js";
import { words } from "./words.js";

const FORMATS = ["png", "pdf", "json"];

/** Buttons that save what `current()` gives: { explanation, factors, against, evidence, image, lesion }. */
export function saveMenu(place, app, current) {
  for (const kind of FORMATS) {
    const each = button(words.saveAs[kind], async () => {
      each.disabled = true;
      app.clearError();
      try {
        await save(kind, current());
      } catch (error) {
        app.fail(error);
      } finally {
        each.disabled = false;
      }
    });
    each.dataset.testid = `save-${kind}`;
    each.title = words.saveHelp[kind];
    place.append(each);
  }
}

async function save(kind, { explanation, image, lesion, ...asked }) {
  const content = kind === "json"
    ? new Blob([JSON.stringify(toSave(explanation, asked.factors), null, 1)], { type: "application/json" })
    : await explanationFile(kind, image, explanation.run, lesion, asked);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = `${explanation.image.replace(/^.*[\\/]/, "").replace(/\.[^.]*$/, "")}-explanation.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The explanation of the contract without what only the page draws, and what was asked back. */
function toSave(explanation, factors) {
  const { input, saliency, ...kept } = explanation;
  const prototypes = kept.prototypes.map(({ map, case: source, ...part }) => ({
    ...part,
    case: source && { image: source.image, class: source.class, box: source.box },
  }));
  const content = { ...kept, prototypes };
  if (!factors.size) return content;
  const logits = scoresWith(explanation, factors);
  const changed = { predicted: ranked(logits)[0], logits, probabilities: shares(logits), factors: Object.fromEntries(factors) };
  return { ...content, asked_back: changed };
}
