// Where a prototype activates: its similarity map, upsampled to the model's input, from the 95th percentile up.

const PERCENTILE = 0.95;

/** Line segments [x, y, x, y] in fractions of the model's input. */
export function outline(map, size) {
  const values = upsample(map, size);
  const sorted = Float32Array.from(values).sort();
  const rank = Math.ceil(PERCENTILE * (sorted.length - 1) - 1e-6);
  const threshold = sorted[rank];
  let below = rank;
  while (below >= 0 && sorted[below] >= threshold) below -= 1;
  return below < 0 ? [] : segments(values, size, (threshold + sorted[below]) / 2);
}

/** Bilinear, corners not aligned, as the server does it: values from 0 to 255. */
export function upsample(map, size) {
  const bytes = Uint8Array.from(atob(map.values), (letter) => letter.charCodeAt(0));
  const [x, y] = [places(map.columns, size), places(map.rows, size)];
  const out = new Float32Array(size * size);
  for (let row = 0; row < size; row += 1) {
    const [top, bottom, down] = y[row];
    for (let column = 0; column < size; column += 1) {
      const [left, right, across] = x[column];
      const above = bytes[top * map.columns + left] * (1 - across) + bytes[top * map.columns + right] * across;
      const under = bytes[bottom * map.columns + left] * (1 - across) + bytes[bottom * map.columns + right] * across;
      out[row * size + column] = above * (1 - down) + under * down;
    }
  }
  return out;
}

function places(count, size) {
  return Array.from({ length: size }, (_, index) => {
    const place = Math.min(Math.max(((index + 0.5) * count) / size - 0.5, 0), count - 1);
    const first = Math.floor(place);
    return [first, Math.min(first + 1, count - 1), place - first];
  });
}

/** Marching squares between pixel centres; a rim of low values closes lines at the border. */
function segments(values, size, level) {
  const at = (column, row) =>
    column < 0 || row < 0 || column >= size || row >= size ? level - 1 : values[row * size + column];
  const found = [];
  for (let row = -1; row < size; row += 1) {
    for (let column = -1; column < size; column += 1) {
      const corners = [at(column, row), at(column + 1, row), at(column + 1, row + 1), at(column, row + 1)];
      const points = crossings(corners, level).map(([x, y]) => [
        Math.min(Math.max((column + 0.5 + x) / size, 0), 1),
        Math.min(Math.max((row + 0.5 + y) / size, 0), 1),
      ]);
      for (let index = 0; index + 1 < points.length; index += 2) {
        found.push([...points[index], ...points[index + 1]]);
      }
    }
  }
  return found;
}

const SIDES = [
  [0, 1, (share) => [share, 0]],
  [1, 2, (share) => [1, share]],
  [2, 3, (share) => [1 - share, 1]],
  [3, 0, (share) => [0, 1 - share]],
];

function crossings(corners, level) {
  const points = [];
  for (const [from, to, place] of SIDES) {
    if (corners[from] > level !== corners[to] > level) {
      points.push(place((level - corners[from]) / (corners[to] - corners[from])));
    }
  }
  return points;
}

/** Closed lines [x, y, x, y, …] as segments. */
export function asSegments(lines) {
  return lines.flatMap((line) => {
    const found = [];
    for (let index = 0; index + 3 < line.length; index += 2) found.push(line.slice(index, index + 4));
    return found;
  });
}

/** Segments of the model's input in pixels of the file. */
export function onFile(found, explanation) {
  const { x0, y0, x1, y1 } = explanation.region;
  const across = explanation.input.mirrored ? (x) => x1 - x * (x1 - x0) : (x) => x0 + x * (x1 - x0);
  const down = (y) => y0 + y * (y1 - y0);
  return found.map(([ax, ay, bx, by]) => [across(ax), down(ay), across(bx), down(by)]);
}

/** The square around a lesion box with the run's margin, as the server cuts it. */
export function squareAround(box, margin, width, height) {
  const [x0, y0] = [Math.floor(Math.max(box[0], 0)), Math.floor(Math.max(box[1], 0))];
  const [x1, y1] = [Math.ceil(Math.min(box[2], width)), Math.ceil(Math.min(box[3], height))];
  const side = Math.ceil(Math.max(x1 - x0, y1 - y0) * (1 + 2 * margin) - 1e-9);
  const left = shifted(Math.floor((x0 + x1 - side) / 2), side, width);
  const top = shifted(Math.floor((y0 + y1 - side) / 2), side, height);
  return { x0: left, y0: top, x1: left + side, y1: top + side };
}

function shifted(start, side, length) {
  const room = length - side;
  return Math.min(Math.max(start, Math.min(room, 0)), Math.max(room, 0));
}
