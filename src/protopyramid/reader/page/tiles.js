// Tiles of a film: 16-bit values are fetched once, and turned into grey by the window when they are drawn.

import { loadValues } from "./server.js";

const MOST_TILES = 120;
const AT_ONCE = 6; // requests
const LEVELS = 65536;

export class Tiles {
  constructor(changed) {
    this.changed = changed;
    this.film = null;
    this.tiles = new Map();
    this.wanted = [];
    this.loading = 0;
    this.look = "";
    this.table = new Uint32Array(LEVELS);
  }

  open(film) {
    this.film = film;
    this.tiles.clear();
    this.wanted = [];
  }

  /** Draw from now on with black at `low` and white at `high`, or the other way round. */
  setLook(low, high, inverted) {
    const look = `${low}:${high}:${inverted}`;
    if (look === this.look) return;
    this.look = look;
    const scale = 255 / Math.max(high - low, 1e-6);
    for (let value = 0; value < LEVELS; value += 1) {
      let grey = Math.min(Math.max(Math.round((value / (LEVELS - 1) - low) * scale), 0), 255);
      if (inverted) grey = 255 - grey;
      this.table[value] = grey;
    }
  }

  /** Begin a picture: tiles that are asked for from now on are fetched, earlier wishes are dropped. */
  begin() {
    this.wanted = [];
  }

  /** The canvas of a tile, or null where its values are not there yet. */
  get(level, column, row) {
    const key = `${level}/${column}/${row}`;
    const tile = this.tiles.get(key);
    if (!tile) {
      this.wanted.push({ key, level, column, row });
      return null;
    }
    this.tiles.delete(key); // the last used stays longest
    this.tiles.set(key, tile);
    if (!tile.values) return null;
    if (tile.look !== this.look) this.render(tile);
    return tile.canvas;
  }

  render(tile) {
    tile.canvas ??= Object.assign(document.createElement("canvas"), { width: tile.width, height: tile.height });
    const context = tile.canvas.getContext("2d");
    const image = context.createImageData(tile.width, tile.height);
    const out = new Uint32Array(image.data.buffer);
    const { values } = tile;
    const { table } = this;
    if (this.film.channels === 1) {
      for (let index = 0; index < out.length; index += 1) out[index] = 0xff000000 | (table[values[index]] * 0x010101);
    } else {
      for (let index = 0, from = 0; index < out.length; index += 1, from += 3) {
        out[index] =
          0xff000000 | (table[values[from + 2]] << 16) | (table[values[from + 1]] << 8) | table[values[from]];
      }
    }
    context.putImageData(image, 0, 0);
    tile.look = this.look;
  }

  /** Fetch what was asked for and is missing, a few at a time. */
  fetch() {
    while (this.loading < AT_ONCE && this.wanted.length) {
      const { key, level, column, row } = this.wanted.shift();
      if (!this.tiles.has(key)) this.load(key, level, column, row);
    }
  }

  async load(key, level, column, row) {
    const { film, tiles } = this;
    const tile = { values: null, canvas: null, look: "" };
    tiles.set(key, tile);
    this.loading += 1;
    try {
      Object.assign(tile, await loadValues(film.id, level, column, row));
      for (const old of tiles.keys()) {
        if (tiles.size <= MOST_TILES) break;
        tiles.delete(old);
      }
    } catch {
      // The film was dropped by the server, or the server ended: what asks next tells the user.
    } finally {
      this.loading -= 1;
      if (film === this.film) this.changed();
    }
  }
}
