// Evidence regions: the smallest part found that keeps nine tenths of a match when everything else is replaced.
// Finding one takes several passes of the network, so the rows that are in sight are asked for one by one.

import { evidenceOf } from "./server.js";

const WAIT = 1000; // milliseconds after the server has said that it is busy

export class EvidenceRegions {
  /** found(index): called when one is there; fail(error): when the search ends with an error. */
  constructor(explanation, film, lesion, found, fail) {
    Object.assign(this, { explanation, film, lesion, found, fail, known: new Map(), wanted: [], stopped: null });
  }

  /** { segments (in fractions of the model's input), share, kept }, null for a flat map; undefined until it is found. */
  get(index) {
    return this.known.get(index);
  }

  /** Look for the regions of these prototypes, in this order; earlier wishes are dropped. */
  want(indices) {
    this.wanted = indices.filter((index) => !this.known.has(index));
    if (!this.stopped && this.wanted.length) this.search();
  }

  stop() {
    this.wanted = [];
    this.stopped?.abort();
  }

  async search() {
    this.stopped = new AbortController();
    const { signal } = this.stopped;
    const { explanation, film, lesion } = this;
    try {
      while (this.wanted.length) {
        const [index] = this.wanted;
        const evidence = await evidenceOf(film.id, explanation.run, lesion, index, signal).catch((error) => {
          if (error.status !== 503) throw error;
          return undefined; // busy
        });
        if (signal.aborted) return;
        if (evidence === undefined) {
          await new Promise((resolve) => setTimeout(resolve, WAIT));
          continue;
        }
        this.known.set(index, evidence && { ...evidence, segments: inFractions(evidence.mask, explanation) });
        this.wanted = this.wanted.filter((each) => each !== index);
        this.found(index);
      }
    } catch (error) {
      this.fail(error);
    } finally {
      this.stopped = null;
    }
  }
}

/** Lines [[x, y], …] in pixels of the file as segments in fractions of the model's input. */
function inFractions(lines, { region, input }) {
  const across = (x) => (input.mirrored ? region.x1 - x : x - region.x0) / (region.x1 - region.x0);
  const down = (y) => (y - region.y0) / (region.y1 - region.y0);
  return lines.flatMap((line) =>
    line.slice(1).map(([x, y], place) => [across(line[place][0]), down(line[place][1]), across(x), down(y)]),
  );
}
