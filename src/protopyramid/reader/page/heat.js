// Heat: an activation map as colours that grow brighter and less transparent where the prototype is more active.

import { upsample } from "./regions.js";

const FROM = 0.35; // of the way from the least to the greatest value: below, nothing is drawn
// Stops of a map like inferno: it grows brighter throughout, so it can be read without colours.
const STOPS = [[40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];

/** A canvas of size x size that can be laid over what the model sees. */
export function heatCanvas(map, size) {
  const values = upsample(map, size);
  const canvas = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  values.forEach((value, index) => {
    const share = Math.max(0, (value / 255 - FROM) / (1 - FROM));
    const [red, green, blue] = colour(share);
    image.data.set([red, green, blue, share > 0 ? 60 + 195 * share : 0], 4 * index);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function colour(share) {
  const place = Math.min(share, 1) * (STOPS.length - 1);
  const first = Math.min(Math.floor(place), STOPS.length - 2);
  const along = place - first;
  return STOPS[first].map((value, channel) => value * (1 - along) + STOPS[first + 1][channel] * along);
}
