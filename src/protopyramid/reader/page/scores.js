// What the model would say if some comparisons counted less, more or not at all: the head is linear, so this is exact.

/** How much a comparison counts: 1 as the model has it, 0 switched off. */
export const factorOf = (factors, part) => factors.get(part.index) ?? 1;

/** Scores by class: the sum of the contributions, each times its factor. */
export function scoresWith(explanation, factors) {
  if (!explanation.prototypes.length) return { ...explanation.logits };
  const scores = {};
  for (const name of Object.keys(explanation.logits)) {
    scores[name] = 0;
    for (const part of explanation.prototypes) scores[name] += factorOf(factors, part) * part.contributions[name];
  }
  return scores;
}

/** Softmax of scores by class. */
export function shares(scores) {
  const largest = Math.max(...Object.values(scores));
  const powers = Object.entries(scores).map(([name, score]) => [name, Math.exp(score - largest)]);
  const total = powers.reduce((sum, [, power]) => sum + power, 0);
  return Object.fromEntries(powers.map(([name, power]) => [name, power / total]));
}

/** Class names from the highest score to the lowest. */
export function ranked(scores) {
  return Object.keys(scores).sort((a, b) => scores[b] - scores[a]);
}

/** The weight of a comparison for a class, or for it rather than another one. */
export const weightFor = (part, name, against) => part.weights[name] - (against ? part.weights[against] : 0);

/** What a comparison adds to a class, or to its lead over another one. */
export const addedTo = (part, name, against) =>
  part.contributions[name] - (against ? part.contributions[against] : 0);

/** Prototypes from the one that matters most to the one that matters least. */
export function strongest(explanation, name, against = null) {
  const size = (part) => Math.abs(addedTo(part, name, against));
  return [...explanation.prototypes].sort((a, b) => size(b) - size(a));
}
