// Requests to the server; what it refuses becomes an Error with its one line.

import { words } from "./words.js";

export async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(words.unreachable);
  }
  if (response.status === 401) throw new Error(words.tokenNeeded);
  const content = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(content.error ?? `${response.status} ${response.statusText}`);
    throw Object.assign(error, { status: response.status });
  }
  return content;
}

export const listRuns = () => answer("/api/runs");
export const listCases = () => answer("/api/cases");
export const openCase = (number) => answer(`/api/cases/${number}`, { method: "POST" });


/** The film that a case was cut from, with `crop`, the part that it is; the case itself where that is not known. */
export const openCaseFilm = (number) => answer(`/api/cases/${number}/film`, { method: "POST" });

export function openFile(file) {
  const form = new FormData();
  form.append("file", file);
  return answer("/api/images", { method: "POST", body: form });
}

export const describeRun = (run) => answer(`/api/runs/${encodeURIComponent(run)}`);
export const useOfPrototypes = (run) => answer(`/api/runs/${encodeURIComponent(run)}/use`);
const prototypePath = (run, index) => `/api/runs/${encodeURIComponent(run)}/prototypes/${index}`;

/** { neighbours: […] or null, looked_at, images, error }: the training cases nearest to a prototype. */
export const neighbours = (run, index) => answer(`${prototypePath(run, index)}/neighbours`);
export const neighbourPictureUrl = (run, index, place) => `${prototypePath(run, index)}/neighbours/${place}.png`;

function posted(path, content) {
  const headers = { "Content-Type": "application/json" };
  return answer(path, { method: "POST", headers, body: JSON.stringify(content) });
}

/** What an edit ({ remove, weights }) of a model would do; saveEdit also takes the new run's name. */
export const planEdit = (run, edit) => posted(`/api/runs/${encodeURIComponent(run)}/plan`, edit);
export const saveEdit = (run, edit) => posted(`/api/runs/${encodeURIComponent(run)}/edits`, edit);

function question(image, run, lesion) {
  const form = new FormData();
  form.append("image", image);
  form.append("run", run);
  if (lesion) form.append("lesion", lesion.join(","));
  return form;
}

/** The explanation of a lesion, or of the whole image; with Grad-CAM where that is asked for. */
export function explain(image, run, lesion, signal, saliency = false) {
  const form = question(image, run, lesion);
  if (saliency) form.append("saliency", "true");
  return answer("/api/explain", { method: "POST", body: form, signal });
}

/** The evidence region of a prototype: { mask, share, kept }, or null where its map is flat. */
export async function evidenceOf(image, run, lesion, index, signal) {
  const form = question(image, run, lesion);
  form.append("evidence", index);
  const found = await answer("/api/explain", { method: "POST", body: form, signal });
  return found.prototypes.find((part) => part.index === index).evidence;
}

/**
 * The explanation as a file, png or pdf, with prototypes that count `factors` times as much, against a class;
 * with evidence regions outlined where that is asked for.
 */
export async function explanationFile(kind, image, run, lesion, { factors, against, evidence }) {
  const form = question(image, run, lesion);
  if (evidence) form.append("evidence", "true");
  if (factors.size) form.append("factors", JSON.stringify(Object.fromEntries(factors)));
  if (against) form.append("against", against);
  const response = await fetch(`/api/explain/${kind}`, { method: "POST", body: form });
  if (response.ok) return response.blob();
  const content = await response.json().catch(() => ({}));
  throw new Error(content.error ?? words.unreachable);
}

/** A tile's 16-bit values with its size. */
export async function loadValues(image, level, column, row) {
  const response = await fetch(`/api/images/${image}/values/${level}/${column}/${row}`);
  if (!response.ok) throw new Error(words.unreachable);
  const [width, height] = ["X-Width", "X-Height"].map((name) => Number(response.headers.get(name)));
  return { values: new Uint16Array(await response.arrayBuffer()), width, height };
}

const regions = new Map();

/** Where a prototype activates on its own case: { contours, map }. */
export function caseRegion(run, index) {
  const path = `${prototypePath(run, index)}/contours`;
  if (!regions.has(path)) regions.set(path, answer(path));
  return regions.get(path);
}

export function pictureUrl(image, region, low, high) {
  const box = [region.x0, region.y0, region.x1, region.y1].join(",");
  return `/api/images/${image}/picture?region=${box}&low=${low}&high=${high}&side=448`;
}

export function loadImage(url) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error(words.unreachable));
    image.src = url;
  });
}
