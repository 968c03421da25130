// Shapes on a film, in pixels of the file: a lesion's box or outline, and a ruler.
//   { kind: "box", box: [x0, y0, x1, y1] } | { kind: "outline", points: [[x, y], …] } | { kind: "ruler", points: [a, b] }

const SMALLEST = 4; // pixels of the film
const MOST_POINTS = 28; // of an outline: handles that can still be told apart
const EDGES = [[0, 1], [1], [2, 1], [2], [2, 3], [3], [0, 3], [0]]; // that each handle of a box moves
export const CURSORS = ["nwse", "ns", "nesw", "ew", "nwse", "ns", "nesw", "ew"];

export const boxShape = (box) => ({ kind: "box", box });
export const rulerShape = (from, to) => ({ kind: "ruler", points: [from, to] });

/** A closed line through the points of a stroke, with few enough corners to drag each. */
export function outlineShape(stroke) {
  let tolerance = 0.5;
  let points = stroke;
  while (points.length > MOST_POINTS) {
    points = simplified(stroke, tolerance);
    tolerance *= 1.5;
  }
  return { kind: "outline", points };
}

/** An ellipse in a box as an outline, to begin with where there is no mouse. */
export function ellipse([x0, y0, x1, y1], corners = 12) {
  const points = Array.from({ length: corners }, (_, index) => {
    const angle = (2 * Math.PI * index) / corners;
    return [(x0 + x1 + (x1 - x0) * Math.cos(angle)) / 2, (y0 + y1 + (y1 - y0) * Math.sin(angle)) / 2];
  });
  return { kind: "outline", points };
}

/** The box around a shape. */
export function bounds(shape) {
  if (shape.kind === "box") return shape.box;
  const [x, y] = [shape.points.map((point) => point[0]), shape.points.map((point) => point[1])];
  return [Math.min(...x), Math.min(...y), Math.max(...x), Math.max(...y)];
}

export function handles(shape) {
  if (shape.kind !== "box") return shape.points;
  const [left, top, right, bottom] = shape.box;
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  return [[left, top], [x, top], [right, top], [right, y], [right, bottom], [x, bottom], [left, bottom], [left, y]];
}

/** A shape with one of its handles moved. */
export function withHandle(shape, handle, dx, dy) {
  if (shape.kind === "box") {
    const shift = [dx, dy, dx, dy];
    return boxShape(shape.box.map((edge, index) => (EDGES[handle].includes(index) ? edge + shift[index] : edge)));
  }
  const points = shape.points.map(([x, y], index) => (index === handle ? [x + dx, y + dy] : [x, y]));
  return { ...shape, points };
}

/** A shape moved as far as the film reaches. */
export function moved(shape, dx, dy, film) {
  const [x0, y0, x1, y1] = bounds(shape);
  const x = Math.min(Math.max(dx, -x0), film.width - x1);
  const y = Math.min(Math.max(dy, -y0), film.height - y1);
  if (shape.kind === "box") return boxShape([x0 + x, y0 + y, x1 + x, y1 + y]);
  return { ...shape, points: shape.points.map((point) => [point[0] + x, point[1] + y]) };
}

/** A shape whose right and lower sides are moved; the others stay. */
export function resized(shape, dx, dy) {
  const [x0, y0, x1, y1] = bounds(shape);
  const [width, height] = [Math.max(x1 - x0 + dx, SMALLEST), Math.max(y1 - y0 + dy, SMALLEST)];
  if (shape.kind === "box") return boxShape([x0, y0, x0 + width, y0 + height]);
  const stretch = ([x, y]) => [
    x0 + ((x - x0) * width) / Math.max(x1 - x0, 1e-6),
    y0 + ((y - y0) * height) / Math.max(y1 - y0, 1e-6),
  ];
  return { ...shape, points: shape.points.map(stretch) };
}

/** A shape within the film; null where nothing is left of it. */
export function within(shape, film) {
  const clip = (value, most) => Math.min(Math.max(value, 0), most);
  if (shape.kind !== "box") {
    const points = shape.points.map(([x, y]) => [clip(x, film.width), clip(y, film.height)]);
    const [x0, y0, x1, y1] = bounds({ ...shape, points });
    const small = shape.kind === "ruler" ? Math.hypot(x1 - x0, y1 - y0) < 1 : x1 - x0 < 1 || y1 - y0 < 1;
    return small || (shape.kind === "outline" && points.length < 3) ? null : { ...shape, points };
  }
  const x = [clip(shape.box[0], film.width), clip(shape.box[2], film.width)].sort((a, b) => a - b);
  const y = [clip(shape.box[1], film.height), clip(shape.box[3], film.height)].sort((a, b) => a - b);
  if (x[1] - x[0] < 1 || y[1] - y[0] < 1) return null;
  return boxShape([x[0], y[0], x[1], y[1]].map((edge) => Math.round(edge)));
}

/** The length of a ruler: { value, unit: "mm" or "px" }. */
function lengthOf(shape, spacing) {
  const [[ax, ay], [bx, by]] = shape.points;
  if (spacing) return { value: Math.hypot((bx - ax) * spacing.x, (by - ay) * spacing.y), unit: "mm" };
  return { value: Math.hypot(bx - ax, by - ay), unit: "px" };
}

/** The length of a ruler as it is written. */
export function lengthText(shape, spacing) {
  const { value, unit } = lengthOf(shape, spacing);
  return `${value.toFixed(unit === "mm" ? 1 : 0)} ${unit}`;
}

/** Douglas and Peucker's line with fewer points. */
function simplified(points, tolerance) {
  if (points.length < 3) return points;
  const [first, last] = [points[0], points[points.length - 1]];
  let [worst, place] = [-1, 0];
  for (let index = 1; index < points.length - 1; index += 1) {
    const away = distanceTo(points[index], first, last);
    if (away > worst) [worst, place] = [away, index];
  }
  if (worst <= tolerance) return [first, last];
  return [...simplified(points.slice(0, place + 1), tolerance).slice(0, -1), ...simplified(points.slice(place), tolerance)];
}

function distanceTo([x, y], [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = Math.hypot(dx, dy);
  return length < 1e-9 ? Math.hypot(x - ax, y - ay) : Math.abs(dx * (y - ay) - dy * (x - ax)) / length;
}
