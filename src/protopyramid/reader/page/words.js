// Every word that the page shows: translate this file, and no other.

const levelChips = { 2: "finest", 3: "fine", 4: "coarse", 5: "whole" };
const levelNames = { 2: "very fine detail", 3: "fine detail", 4: "coarse detail", 5: "overall shape" };

export const words = {
  // Every screen: header, navigation
  screens: "Screens",
  screenNames: { lesion: "Read one lesion", prototypes: "Prototypes", readings: "Reader study", annotate: "Annotate" },

  commonKeys: [["?", "this list"]],

  // Reader study (readings.js)
  readings: {
    title: "Reader study",
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
