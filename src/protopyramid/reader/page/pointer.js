// Mouse, touch and wheel on the film. A tool begins a gesture: { move(x, y), end() } in pixels of the screen.

import { CURSORS, boxShape, bounds, handles, moved, outlineShape, rulerShape, withHandle } from "./shapes.js";

const REACH = 9; // pixels of the screen around a handle that grab it
const STILL = 4; // pixels that a hand may tremble
const HAND = { cursor: "grab", begin: beginPan };
const TOOLS = {
  mark: { cursor: "crosshair", begin: beginShape },
  outline: { cursor: "crosshair", begin: beginShape },
  ruler: { cursor: "crosshair", begin: beginShape },
  pan: HAND,
  window: { cursor: "ns-resize", begin: beginWindow },
};
const DRAWN = ["mark", "outline", "ruler"];

export function listen(viewer) {
  const { canvas } = viewer;
  const fingers = new Map();
  let gesture = null;

  const place = (event) => {
    const frame = canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };

  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    viewer.zoom(2 ** (-event.deltaY / (event.ctrlKey ? 120 : 400)), ...place(event));
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (!viewer.film) return;
    canvas.focus();
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    if (fingers.size > 1) {
      gesture?.end();
      gesture = null;
    } else gesture = toolFor(viewer, event).begin(viewer, place(event), event);
  });

  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (fingers.size > 1) pinch(viewer, fingers, event.pointerId, [x, y]);
    else if (gesture) gesture.move(x, y);
    else canvas.style.cursor = viewer.film ? cursorAt(viewer, x, y) : "default";
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [x, y]);
  });

  const end = (event) => {
    fingers.delete(event.pointerId);
    if (fingers.size) return;
    gesture?.end();
    gesture = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

function toolFor(viewer, event) {
  if (event.button === 2) return TOOLS.window;
  if (event.button === 1) return HAND;
  return viewer.tools[viewer.tool] ?? TOOLS[viewer.tool] ?? HAND;
}

function grip(viewer, x, y) {
  if (!DRAWN.includes(viewer.tool) || !viewer.shape) return -1;
  return handles(viewer.shape).findIndex((handle) => {
    const [left, top] = viewer.toScreen(...handle);
    return Math.abs(left - x) <= REACH && Math.abs(top - y) <= REACH;
  });
}

function inside(viewer, x, y) {
  if (!DRAWN.includes(viewer.tool) || !viewer.shape || viewer.tool === "ruler") return false;
  const [filmX, filmY] = viewer.toFilm(x, y);
  const [x0, y0, x1, y1] = bounds(viewer.shape);
  return filmX >= x0 && filmX <= x1 && filmY >= y0 && filmY <= y1;
}

function cursorAt(viewer, x, y) {
  const held = grip(viewer, x, y);
  if (held >= 0) return viewer.shape.kind === "box" ? `${CURSORS[held]}-resize` : "grab";
  if (inside(viewer, x, y)) return "move";
  return (viewer.tools[viewer.tool] ?? TOOLS[viewer.tool] ?? HAND).cursor;
}

// -- gestures ---------------------------------------------------------------------------------------
function beginPan(viewer, [x, y]) {
  return dragged(x, y, (dx, dy) => viewer.pan(dx, dy));
}

function beginWindow(viewer, [x, y]) {
  return dragged(x, y, (dx, dy) => viewer.changeWindow(dx / 200, -dy / 400));
}

function dragged(x, y, act) {
  let last = [x, y];
  return {
    move(nowX, nowY) {
      act(nowX - last[0], nowY - last[1]);
      last = [nowX, nowY];
    },
    end() {},
  };
}

/** Drag a handle, the shape, or draw another one. */
function beginShape(viewer, [x, y]) {
  const held = grip(viewer, x, y);
  const before = viewer.shape;
  const [startX, startY] = viewer.toFilm(x, y);
  const stroke = [[startX, startY]];
  let used = false;

  const shapeAt = (filmX, filmY) => {
    const [dx, dy] = [filmX - startX, filmY - startY];
    if (held >= 0) return withHandle(before, held, dx, dy);
    if (before && carried) return moved(before, dx, dy, viewer.film);
    if (viewer.tool === "ruler") return rulerShape([startX, startY], [filmX, filmY]);
    if (viewer.tool === "mark") return boxShape([startX, startY, filmX, filmY]);
    stroke.push([filmX, filmY]);
    return { kind: "outline", points: stroke };
  };
  const carried = held < 0 && inside(viewer, x, y);

  return {
    move(nowX, nowY) {
      if (!used && Math.hypot(nowX - x, nowY - y) < STILL) return;
      used = true;
      viewer.handle = -1;
      viewer.setShape(shapeAt(...viewer.toFilm(nowX, nowY)), false);
    },
    end() {
      if (!used) return;
      const drawn = viewer.tool === "outline" && held < 0 && !carried;
      viewer.setShape(drawn ? outlineShape(stroke) : viewer.shape);
    },
  };
}

function pinch(viewer, fingers, id, now) {
  const other = [...fingers.entries()].find(([key]) => key !== id)?.[1];
  const before = fingers.get(id);
  if (!other || !before) return;
  const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
  const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
  viewer.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
  viewer.zoom(distance(now, other) / distance(before, other), ...middle);
}
