"use strict";
// Asks the service while somebody types, one question at a time: what was typed while
// an answer was on its way is asked when it is there, so nothing piles up.

const CLASSES = 8;
const RETRY_MS = 1000;
const byId = (id) => document.getElementById(id);
const question = byId("question");
const number = new Intl.NumberFormat("en");

let card = null;
let answer = null;
let chosen = 0;
let asked = null;
let busy = false;
const lookalikesOf = new Map();

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function show(id, isShown) {
  byId(id).hidden = !isShown;
}

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function fetchJson(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new Refusal(response.status, content?.error?.message ?? `status ${response.status}`);
  return [content, response.headers];
}

// What is typed, as the model reads it; throws what is wrong with it.
function item(text) {
  if (card.reads === "text") return { text };
  const words = text.split(/[\s,]+/).filter(Boolean);
  const value = (word, whole) => {
    const found = Number(word);
    if (word === "" || !Number.isFinite(found)) throw new Error(`“${whole}” is not what was expected: ${card.form}`);
    return found;
  };
  if (card.reads === "vector") {
    const vector = words.map((word) => value(word, word));
    const missing = card.features - vector.length;
    if (missing !== 0) throw new Error(`${vector.length} of ${card.features} numbers so far.`);
    return { vector };
  }
  return {
    features: words.map((word) => {
      const [id, weight = "1", ...more] = word.split(":");
      if (!/^\d+$/.test(id) || more.length > 0) throw new Error(`“${word}” is not what was expected: ${card.form}`);
      return [Number(id), value(weight, word)];
    }),
  };
}

async function ask() {
  if (busy || !card || question.value === asked) return;
  const text = question.value;
  asked = text;
  if (text.trim() === "") return clear();
  setBusy(true);
  try {
    const wish = { ...item(text), k: Math.min(CLASSES, card.classes, card.limits.k), probabilities: true, explain: true };
    const started = performance.now();
    const [found, headers] = await fetchJson("v1/predict", wish);
    const milliseconds = performance.now() - started;
    answer = found.answers[0];
    chosen = 0;
    complain("");
    showTiming(milliseconds, headers.get("Server-Timing"));
    showAnswer();
  } catch (error) {
    explainFailure(error);
  } finally {
    setBusy(false);
  }
  // Whatever was typed meanwhile.
  ask();
}

function setBusy(isBusy) {
  busy = isBusy;
  byId("classes").setAttribute("aria-busy", String(isBusy));
}

function clear() {
  answer = null;
  complain("");
  byId("timing").textContent = "";
  byId("classes").replaceChildren();
  show("empty", true);
  show("prior", false);
  show("details", false);
  show("alike", false);
}

function complain(message) {
  byId("problem").textContent = message;
  show("problem", message !== "");
}

function explainFailure(error) {
  const isBusy = error instanceof Refusal && (error.status === 429 || error.status === 503);
  const isGone = error instanceof TypeError;
  if (isBusy || isGone) {
    complain(isBusy ? "The service is busy; asking again." : "The service does not answer; asking again.");
    asked = null;
    setTimeout(ask, RETRY_MS);
  } else {
    complain(error.message);
  }
}

function showTiming(milliseconds, timing) {
  const work = /work;dur=([\d.]+)/.exec(timing ?? "");
  const model = work ? `, ${Number(work[1]).toFixed(1)} ms of it the model` : "";
  byId("timing").textContent = `Answered in ${milliseconds.toFixed(1)} ms${model}`;
}

function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1%";
  return `${(100 * share).toFixed(1)}%`;
}

function barred(made, share) {
  made.classList.add("bar");
  made.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return made;
}

function classButtons() {
  return [...byId("classes").querySelectorAll("button")];
}

function showAnswer() {
  const lines = answer.classes.map(({ name, score }, place) => {
    const label = element("span", { className: "class-name" }, name);
    const button = element("button", { type: "button" }, label, element("span", { className: "value" }, percent(score)));
    button.addEventListener("click", () => choose(place));
    return element("li", {}, barred(button, score));
  });
  const walkedTo = classButtons().indexOf(document.activeElement);
  byId("classes").replaceChildren(...lines);
  // Somebody walks through the answers by keyboard and stays at the same place.
  if (walkedTo >= 0) (classButtons()[walkedTo] ?? question).focus();
  show("empty", false);
  show("prior", answer.prior);
  const best = answer.classes[0];
  byId("status").textContent = best ? `${answer.classes.length} classes. Best: ${best.name}, ${percent(best.score)}` : "No class.";
  choose(0);
}

function choose(place) {
  chosen = place;
  classButtons().forEach((button, i) => button.setAttribute("aria-pressed", i === place));
  const picked = answer.classes[place];
  show("details", picked !== undefined);
  show("alike", picked !== undefined);
  if (!picked) return;
  byId("details-title").textContent = `Why ${picked.name}?`;
  byId("alike-title").textContent = `What looks like ${picked.name}`;
  showFeatures(picked.explanation);
  showLookalikes(picked.name);
}

function showFeatures({ features, other_features, nearest_examples, constant }) {
  const rows = features.map(({ id, name, contribution }) => [element("span", { className: "ngram" }, name ?? `feature ${id}`), contribution]);
  if (other_features !== 0) rows.push(["other features", other_features]);
  if (nearest_examples !== 0) rows.push(["nearest training examples", nearest_examples]);
  rows.push(["biases", constant]);
  const largest = Math.max(...rows.map(([, contribution]) => Math.abs(contribution)), 1e-9);
  const line = ([label, contribution]) => {
    const bar = barred(element("td", {}), Math.abs(contribution) / largest);
    bar.classList.toggle("down", contribution < 0);
    const value = (contribution < 0 ? "−" : "+") + Math.abs(contribution).toFixed(2);
    return element("tr", {}, element("th", { scope: "row" }, label), bar, element("td", { className: "value" }, value));
  };
  byId("features").replaceChildren(...rows.map(line));
}

async function showLookalikes(name) {
  try {
    if (!lookalikesOf.has(name)) {
      const [found] = await fetchJson(`v1/classes/${encodeURIComponent(name)}/lookalikes?k=${Math.min(CLASSES, card.limits.k)}`);
      lookalikesOf.set(name, found.lookalikes);
    }
  } catch (error) {
    // The predictions are there; the next choice asks again.
    return;
  }
  // Another class may be chosen by now.
  if (answer?.classes[chosen]?.name !== name) return;
  const line = (other) => barred(
    element("li", {}, element("span", {}, other.name), element("span", { className: "value" }, other.cosine.toFixed(2))),
    other.cosine,
  );
  byId("lookalikes").replaceChildren(...lookalikesOf.get(name).map(line));
}

function showCard() {
  byId("name").textContent = card.name;
  document.title = `${card.name} · lookalike`;
  byId("summary").textContent =
    `${number.format(card.classes)} classes, ${number.format(card.features)} features, learnt from ${number.format(card.training.examples)} examples`;
  const facts = [
    ["Classes", number.format(card.classes) + (card.has_names ? ", with names" : "")],
    ["Features", number.format(card.features) + (card.reads === "text" ? ", n-grams of text" : "")],
    ["Parameters", `${number.format(card.parameters)} (${card.storage})`],
    ["Hidden layers", card.hidden.join(", ")],
    ["Sparse weights", number.format(card.sparse_weights)],
    ["Training examples kept", number.format(card.kept_examples)],
    ["Search index", card.has_search_index ? "yes" : "no"],
    ["Trained", `${number.format(card.training.examples)} examples, ${card.training.epochs} epochs, ${number.format(card.training.steps)} steps, ${card.training.sampler}`],
    ["Most frequent classes", card.frequent_classes.map(({ name, examples }) => `${name} (${number.format(examples)})`).join(", ")],
    ["Loaded", new Date(1000 * card.loaded).toLocaleString()],
    ["Software", `lookalike ${card.version}`],
  ];
  byId("card").replaceChildren(...facts.flatMap(([term, fact]) => [element("dt", {}, term), element("dd", {}, fact)]));
  if (card.reads === "text") return;
  card.form = card.reads === "vector"
    ? `${number.format(card.features)} numbers, separated by spaces or commas.`
    : `features as id:value below ${number.format(card.features)}, separated by spaces, as in 3:0.5 17:1.`;
  byId("question-label").textContent = card.reads === "vector" ? "Vector" : "Features";
  byId("hint").textContent = `This model reads numbers: ${card.form} Arrow down goes to the answers, Escape back here.`;
}

// Arrow keys walk from the question through the answers.
document.addEventListener("keydown", (event) => {
  const buttons = classButtons();
  const place = buttons.indexOf(document.activeElement);
  const atEnd = document.activeElement === question && question.selectionEnd === question.value.length;
  let next = null;
  if (event.key === "Escape") {
    next = question;
    question.select();
  } else if (event.key === "ArrowDown" && (place >= 0 || atEnd)) {
    next = buttons[place + 1];
  } else if (event.key === "ArrowUp" && place >= 0) {
    next = place === 0 ? question : buttons[place - 1];
  }
  if (next) {
    event.preventDefault();
    next.focus();
  }
});

async function start() {
  try {
    [card] = await fetchJson("v1/model");
  } catch (error) {
    complain("The service does not answer; asking again.");
    setTimeout(start, RETRY_MS);
    return;
  }
  complain("");
  showCard();
  ask();
}

question.addEventListener("input", ask);
start();
