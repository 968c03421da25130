// The screens of the page, in the order of the navigation. Each module exports
//   mount(root, app) -> { show(detail), hide(), key(event) -> whether it was used, keys: [[key, meaning], …] }
// all optional. It fills `root`, an empty section, once; show and hide are called when the user comes and goes.
// `app`: { runs, cases, limits, served, run() (the model chosen in the header), fail(error), clearError(), go(screen, detail) },
// an EventTarget that tells "run" when another model is chosen.

import * as annotate from "./annotate.js";
import * as lesion from "./lesion.js";
import * as prototypes from "./prototypes.js";
import * as readings from "./readings.js";

export const screens = { lesion, prototypes, readings, annotate };
