// What a reader study adds up to: AUROC, time, agreement, over-reliance and right corrections, with their intervals.

import { button, element } from "./dom.js";
import { answer } from "./server.js";
import { words } from "./words.js";

const TENTHS = ["seconds", "confidence"];

export async function showResults(root, back) {
  const said = words.readings;
  root.replaceChildren(element("p", "", words.readings.counting));
  const summary = await answer("/api/readings/summary");
  const { study } = summary;
  const title = element("h1", "", said.results);
  title.dataset.testid = "study-summary";
  const link = Object.assign(element("a", "button", said.download), { href: "/api/readings/readings.csv", download: "readings.csv" });
  link.dataset.testid = "study-csv";
  const parts = [
    title,
    element("p", "", said.about(summary.readers.length, summary.readings, summary.cases, study.cases, study.run)),
  ];
  if (summary.readings) parts.push(rates(summary), compared(summary), people(summary), element("p", "small", said.ratingMethod), element("p", "small", summary.method));
  else parts.push(element("p", "", said.noReadings));
  root.replaceChildren(...parts, element("p", "study-links", "", link, button(said.back, back)));
}

function rates(summary) {
  const said = words.readings;
  const cards = element("div", "study-cards");
  for (const name of ["over_reliance", "correction", "changed"]) {
    const rate = summary[name];
    const share = rate.share === null ? "–" : `${Math.round(100 * rate.share)} %`;
    const card = element("div", `study-card ${name}`, "", element("strong", "", share), element("span", "", said.rates[name]),
      element("span", "small", `${said.of(rate.happened, rate.could)}${percentInterval(rate.ci95)}`));
    card.dataset.testid = `study-${name}`;
    cards.append(card);
  }
  return cards;
}

function compared(summary) {
  const said = words.readings;
  const rows = Object.entries(said.measures).map(([name, title]) => {
    const sides = ["unaided", "aided", "difference"].map((side) => figure(summary[name][side], TENTHS.includes(name), side === "difference"));
    return [title, ...sides];
  });
  return table(said.comparedHead, rows, said.comparedCaption);
}

function people(summary) {
  const said = words.readings;
  const rows = summary.readers.map((reader, place) => [
    reader,
    ...["auroc", "seconds"].flatMap((name) =>
      ["unaided", "aided"].map((side) => number(summary[name][side].per_reader[place], TENTHS.includes(name)))),
    ...["over_reliance", "correction"].map((name) => said.of(...summary[name].per_reader[place])),
  ]);
  return table(said.peopleHead, rows, said.peopleCaption);
}

function table(head, rows, caption) {
  const made = element("table", "study-table", "", element("caption", "", caption));
  const cell = (text, kind, scope) => {
    const each = element(kind, "", text);
    if (scope) each.scope = scope;
    return each;
  };
  made.append(element("thead", "", "", element("tr", "", "", ...head.map((text) => cell(text, "th", "col")))));
  const body = rows.map(([first, ...others]) =>
    element("tr", "", "", cell(first, "th", "row"), ...others.map((text) => cell(text, "td"))));
  made.append(element("tbody", "", "", ...body));
  const scroll = element("div", "study-scroll", "", made);
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  return scroll;
}

const number = (value, tenths) => (value === null ? "–" : value.toFixed(tenths ? 1 : 2).replace("-", "−"));

function figure({ value, ci95 }, tenths, signed) {
  if (value === null) return "–";
  const text = `${signed && value > 0 ? "+" : ""}${number(value, tenths)}`;
  return ci95 ? `${text} [${number(ci95[0], tenths)}, ${number(ci95[1], tenths)}]` : text;
}

const percentInterval = (limits) =>
  (limits ? ` [${Math.round(100 * limits[0])}, ${Math.round(100 * limits[1])} %]` : "");
