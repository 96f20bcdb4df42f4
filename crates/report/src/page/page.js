"use strict";
// Charts: values under the pointer or at the arrow keys, and a legend that switches series.
function explore(figure) {
  const svg = figure.querySelector(".plot > svg");
  const tip = figure.querySelector(".tip");
  const groups = [...svg.querySelectorAll(".series")];
  const [width, height] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  // Each point: x and y in the drawing, then the texts of x, y and the spread.
  const all = JSON.parse(figure.querySelector("script").textContent);
  const shown = () => all.filter((_, place) => !groups[place].classList.contains("off"));

  const cross = svg.appendChild(document.createElementNS(svg.namespaceURI, "g"));
  cross.setAttribute("class", "cross");
  const line = cross.appendChild(document.createElementNS(svg.namespaceURI, "line"));
  const dot = cross.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
  dot.setAttribute("r", 5);
  const [top, foot] = [svg.querySelector("clipPath rect").getAttribute("y"),
    svg.querySelector(".ground").getAttribute("d").match(/ ([\d.]+)H/)[1]];

  function element(parent, name, className, text) {
    const made = parent.appendChild(document.createElement(name));
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  function hide() {
    tip.hidden = true;
    cross.style.display = "none";
  }

  // The point itself, and what the other series say at the same x.
  function show(series, point) {
    const [x, y] = point;
    cross.style.display = "";
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: top, y2: foot })) line.setAttribute(name, value);
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
    dot.setAttribute("class", "c" + series.colour);
    const beside = shown().map(other => [other, other === series ? point
      : other.points.find(candidate => Math.abs(candidate[0] - x) < 0.75 || other.bars && candidate[2] === point[2])])
      .filter(([, found]) => found).sort(([, a], [, b]) => a[1] - b[1]);
    tip.replaceChildren();
    element(tip, "div", "at", point[2]);
    for (const [other, found] of beside) {
      const row = element(tip, "div", "value c" + other.colour + (other === series ? " near" : ""));
      element(row, "i");
      element(row, "span", "", other.name);
      element(row, "b", "", found[3]);
      if (other === series && found[4]) element(tip, "div", "spread", found[4]);
    }
    tip.hidden = false;
    const left = x / width * tip.parentNode.clientWidth, high = y / height * tip.parentNode.clientHeight;
    const flip = left + tip.offsetWidth + 16 > tip.parentNode.clientWidth;
    tip.style.left = Math.max(0, flip ? left - tip.offsetWidth - 14 : left + 14) + "px";
    tip.style.top = Math.max(0, Math.min(high - tip.offsetHeight / 2, tip.parentNode.clientHeight - tip.offsetHeight)) + "px";
  }

  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width, y = (event.clientY - box.top) / box.height * height;
    let best = null, nearest = Infinity;
    for (const series of shown()) {
      // A bar is as tall as it is: only the place along x chooses it.
      const weight = series.bars ? 0.01 : 1;
      for (const point of series.points) {
        const distance = (point[0] - x) ** 2 + weight * (point[1] - y) ** 2;
        if (distance < nearest) [best, nearest] = [[series, point], distance];
      }
    }
    if (best) show(...best); else hide();
  });
  svg.addEventListener("pointerleave", hide);

  // Left and right walk along a series, up and down change it.
  let row = 0, column = -1;
  svg.tabIndex = 0;
  svg.addEventListener("keydown", event => {
    const list = shown().filter(series => series.points.length);
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") hide();
    if (!step || !list.length) return;
    event.preventDefault();
    row = (Math.min(row, list.length - 1) + step[0] + list.length) % list.length;
    column = Math.max(0, Math.min(column + step[1], list[row].points.length - 1));
    show(list[row], list[row].points[column]);
  });
  svg.addEventListener("blur", hide);

  for (const button of figure.querySelectorAll(".legend button")) {
    const group = groups[button.dataset.series];
    const light = on => {
      svg.classList.toggle("faded", on && !group.classList.contains("off"));
      group.classList.toggle("lit", on);
    };
    button.addEventListener("click", () => {
      const off = group.classList.toggle("off");
      button.setAttribute("aria-pressed", String(!off));
      light(!off);
      hide();
    });
    for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => light(true));
    for (const name of ["pointerleave", "blur"]) button.addEventListener(name, () => light(false));
  }
  hide();
}

// Tables: a press on a header sorts upward, the next downward, the third restores the order.
function sortable(table) {
  const headers = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const original = [...body.rows];
  const compare = (a, b) => {
    const [first, second] = [a.dataset.value, b.dataset.value];
    if (first !== undefined && second !== undefined) return first - second;
    return a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  };
  headers.forEach((header, place) => header.querySelector("button").addEventListener("click", () => {
    const next = { none: "ascending", ascending: "descending", descending: "none" }[header.getAttribute("aria-sort")];
    for (const other of headers) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", next);
    // Words among numbers ("Fail") and empty cells stay at the end whichever way the rest runs.
    const numeric = original.some(row => row.cells[place].dataset.value !== undefined);
    const last = row => numeric ? row.cells[place].dataset.value === undefined : !row.cells[place].textContent;
    const sign = next === "descending" ? -1 : 1;
    const rows = next === "none" ? original : [...original].sort((a, b) =>
      last(a) - last(b) || sign * compare(a.cells[place], b.cells[place]));
    body.append(...rows);
  }));
}

document.querySelectorAll("figure.chart").forEach(explore);
document.querySelectorAll("table.sortable").forEach(sortable);
