// Every word that the page shows: translate this file, and no other.

const levelChips = { 2: "finest", 3: "fine", 4: "coarse", 5: "whole" };
const levelNames = { 2: "very fine detail", 3: "fine detail", 4: "coarse detail", 5: "overall shape" };

export const words = {
  // Every screen: header, navigation
  screens: "Screens",
  screenNames: { lesion: "Read one lesion", prototypes: "Prototypes", readings: "Reader study", annotate: "Annotate" },

  commonKeys: [["?", "this list"]],

  // Reader study and Annotate (film_panel.js)
  filmKeys: [
    ["+  −", "zoom"],
    ["Arrows", "move the film"],
    ["F", "fit"],
    ["I", "invert"],
    ["[  ]", "narrower, wider window"],
    [",  .", "brighter, darker"],
  ],

  // Reader study (readings.js)
  readings: {
    title: "Reader study",
    notServed: "No reader study is being served. Whoever runs the study starts one with:",
    command: "protopyramid serve RUN --data MANIFEST --readings FOLDER",
    steps: (cases) => [
      `You will see ${cases} cases, one after the other, in an order of your own.`,
      "Read each one on your own first: margin, how sure you are, BI-RADS.",
      "Then the model shows what it thinks, and why. Keep your answer or change it; both are fine.",
      "Every answer is kept at once. You can stop at any time and continue later under the same name.",
    ],
    yourName: "Your name or code",
    begin: "Start reading",
    goOn: "Continue as",
    progress: (done, cases) => (done >= cases ? `all ${cases} cases read` : `${done} of ${cases} cases read`),
    forCoordinators: "For those who run the study",
    resultsWarning: "Results hold the right answers: readers should not see them before they have finished.",
    results: "Results",
    counting: "Adding up…",
    doneTitle: "You have read all cases. Thank you.",
    done: (cases) => `All ${cases} cases are kept; there is nothing left to do.`,
    back: "Back to the start",
    pause: "Stop here and continue later",
    canvas: "Film of the case. Arrows move it, plus and minus zoom.",
    place: (place, cases) => `Case ${place} of ${cases}`,
    unaided: "Step 1 of 2: on your own",
    aided: "Step 2 of 2: with the model",
    modelSays: "The model suggests",
    yourAnswer: "Your answer now",
    saidAlone: (margin, confidence, birads) => `On your own you said: ${margin}, ${confidence} % sure, BI-RADS ${birads}.`,
    margin: "Margin",
    marginKeys: ["1", "2", "3", "4", "5", "6", "7", "8", "9"],
    confidence: "How sure are you of this margin?",
    notSet: "not set",
    guess: "0: a guess",
    certain: "100: certain",
    birads: "BI-RADS",
    biradsMeanings: {
      0: "incomplete", 1: "negative", 2: "benign", 3: "probably benign", "4A": "low suspicion",
      "4B": "moderate suspicion", "4C": "high suspicion", 5: "highly suggestive of malignancy", 6: "known malignancy",
    },
    saveUnaided: "Save and show the model",
    saveAided: "Save and go to the next case",
    about: (readers, readings, cases, all, run) =>
      `${readers} ${readers === 1 ? "reader" : "readers"}, ${readings} complete ${readings === 1 ? "reading" : "readings"} of ${cases} of ${all} cases, with the model ${run}.`,
    noReadings: "No case has been read to the end yet.",
    of: (happened, could) => `${happened} of ${could}`,
    rates: {
      over_reliance: "over-reliance: right alone, then changed to the model's wrong answer",
      correction: "right corrections: wrong alone, then right with a model that was right",
      changed: "of all readings changed their margin after seeing the model",
    },
    measures: {
      auroc: "AUROC",
      accuracy: "Accuracy",
      seconds: "Seconds per case",
      confidence: "Confidence (0–100)",
      kappa_readers: "Agreement between readers (kappa)",
      kappa_truth: "Agreement with the truth (kappa)",
      kappa_model: "Agreement with the model (kappa)",
    },
    comparedHead: ["", "on their own", "with the model", "difference"],
    comparedCaption: "Readers on their own and with the model",
    peopleHead: ["", "AUROC alone", "AUROC with model", "seconds alone", "seconds with model", "over-reliance", "right corrections"],
    peopleCaption: "Each reader",
    ratingMethod:
      "AUROC: one margin against the others, mean over margins and readers; a reader's rating of a margin is the confidence where it was chosen, and minus the confidence where it was not.",
    download: "Download all readings (CSV)",
    keyList: [["1 … 9", "choose a margin"]],
  },

  // Annotate (annotate.js)
  annotate: {
    title: "Annotate",
  },

  // Prototypes (prototypes.js)
  prototypes: {
    title: "Prototypes",
  },

  // Read one lesion (lesion.js)
  openFile: "Open image…",
  case: "Case",
  chooseCase: "choose a case…",
  model: "Model",
  notice: "Research software, not a medical device",
  theme: "Light / dark",
  keys: "Keys",
  close: "Close",
  film: "Film",
  tools: "Film tools",
  canvas: "Film. Press B to place a lesion box, arrows to move it, Alt and arrows to resize it.",
  mark: "Mark lesion",
  pan: "Move",
  window: "Window",
  fit: "Fit",
  actual: "1:1",
  invert: "Invert",
  resetWindow: "Reset window",
  clear: "Clear mark",
  result: "What the model says, and why",
  welcome: "Open a mammogram",
  steps: [
    "Open an image (PNG, JPEG, TIFF, DICOM), or drop it on the left.",
    "Drag a box around the lesion.",
    "Read the margin that the model suggests, and the training cases it compares yours with.",
    "Switch a comparison off to see what the model would say without it.",
  ],
  reading: "The model is looking…",
  opening: "Opening…",
  dropHere: "Drop an image here",
  markHint: "Drag a box around the lesion. The model then looks at the dashed square around it.",
  wholeHint: "The model looks at the whole image. Drag a box to have it look at one lesion.",
  scores: "Scores",
  scoresHelp:
    "A bar adds up the comparisons below; click a class to see why.",
  reset: "Use all again",
  levelsHelp: "Click a size to see it alone; untick it to leave it out of the scores.",
  levels: "Size of the parts compared",
  allLevels: "all sizes",
  useLevel: (level) => `use level ${level}`,
  levelName: (level) => levelChips[level] ?? `level ${level}`,
  yours: "your image",
  theirs: "training case",
  scoreWord: "score",
  weightWord: "weight",
  unlike: "Unlike anything the model has learned. Do not rely on what it says below.",
  framing: (text) => `${text} Mark the lesion with a box.`,
  predicted: (name, isNegative) => (isNegative ? `${capital(name)}: no mass` : capital(name)),
  sure: "The model's suggestion. Its percentages are not a patient's risk.",
  changed: (original) => `With comparisons switched off. With all of them: ${original}.`,
  why: (name) => `Why ${name}?`,
  noPrototypes: "This model has no cases to compare with, so it cannot say why.",
  sentence: (level, caseClass, number) =>
    `This ${levelNames[level] ?? "part"} looks like that of training case ${number} (${caseClass}).`,
  speaks: (isFor, name) => `${isFor ? "for" : "against"} ${name}`,
  more: (count) => `Show all ${count} comparisons`,
  fewer: "Show the strongest only",
  toggle: (number) => `use the comparison with case ${number}`,
  scoreOf: (name) => `Show why ${name}`,
  status: (zoom, low, high, millimetres) =>
    `zoom ${zoom} %   window ${low} – ${high}${millimetres ? `   box ${millimetres} mm` : ""}`,
  tooLarge: (megabytes) => `The file is too large; at most ${megabytes} MB are accepted.`,
  unreachable: "The server cannot be reached; is it still running?",
  tokenNeeded: "The session has ended; load the page again.",
  keyList: [
    ["O", "open an image"],
    ["B", "place a lesion box in the middle of the view"],
    ["Arrows", "move the box (with Shift: faster); without a box, move the film"],
    ["Alt + arrows", "resize the box"],
    ["Delete", "clear the box"],
    ["M  H  W", "tools: mark, move (hand), window"],
    ["+  −", "zoom"],
    ["0  1", "fit, 1:1"],
    ["I", "invert"],
    ["[  ]", "narrower, wider window"],
    [",  .", "brighter, darker"],
    ["R", "reset switched-off comparisons"],
    ["Wheel, right drag", "zoom, window"],
  ],
};

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
