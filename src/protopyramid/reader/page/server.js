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
  if (!response.ok) throw new Error(content.error ?? `${response.status} ${response.statusText}`);
  return content;
}

export const listRuns = () => answer("/api/runs");
export const listCases = () => answer("/api/cases");
export const openCase = (number) => answer(`/api/cases/${number}`, { method: "POST" });

export function openFile(file) {
  const form = new FormData();
  form.append("file", file);
  return answer("/api/images", { method: "POST", body: form });
}

export function explain(image, run, lesion, signal) {
  const form = new FormData();
  form.append("image", image);
  form.append("run", run);
  if (lesion) form.append("lesion", lesion.join(","));
  return answer("/api/explain", { method: "POST", body: form, signal });
}

const contours = new Map();

export function caseContours(run, index) {
  const path = `/api/runs/${encodeURIComponent(run)}/prototypes/${index}/contours`;
  if (!contours.has(path)) contours.set(path, answer(path).then((content) => content.contours));
  return contours.get(path);
}

export function tileUrl(image, level, column, row, low, high) {
  return `/api/images/${image}/tiles/${level}/${column}/${row}?low=${low}&high=${high}`;
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
