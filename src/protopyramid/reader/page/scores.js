// What the model would say without some comparisons: the head is linear, so this is exact.

/** Scores by class: the sum of the contributions of the prototypes that are not switched off. */
export function scoresWithout(explanation, off) {
  if (!explanation.prototypes.length) return { ...explanation.logits };
  const scores = {};
  for (const name of Object.keys(explanation.logits)) {
    scores[name] = 0;
    for (const part of explanation.prototypes) {
      if (!off.has(part.index)) scores[name] += part.contributions[name];
    }
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

/** Prototypes from the one that matters most for a class to the one that matters least. */
export function strongest(explanation, name) {
  return [...explanation.prototypes].sort(
    (a, b) => Math.abs(b.contributions[name]) - Math.abs(a.contributions[name]),
  );
}
