// How numbers are written. The space before % does not break.

export const percent = (share) => `${share > 0.995 ? ">99" : share < 0.005 ? "<1" : Math.round(100 * share)}\u00a0%`;
export const fixed = (value) => value.toFixed(2).replace("-", "−");
export const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
export const whole = (share) => `${Math.round(100 * share)}\u00a0%`;
