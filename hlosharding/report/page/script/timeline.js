// The timeline at any zoom: w and s, a and d, as in Perfetto; dragging selects, and says what is selected.
const [LANE, GAP, HEAD, AXIS, MARGIN] = [34, 10, 8, 22, 104]; // pixels
const KEYS = "w s zoom, a d move, arrows go from bar to bar, dragging selects, f fits the selection, Escape clears it";
const [AT_LANE, AT_KIND, AT_START, AT_TAKES, AT_WHAT, AT_LINE, AT_COUNT] = [0, 1, 2, 3, 4, 5, 6];
const NEAREST = 1e-4; // of the whole that fills the picture
let timeline = null;

const seconds = (value) => {
  const [size, unit] = [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "us"],
  ].find(([size]) => Math.abs(value) >= size) ?? [1e-6, "us"];
  return value ? `${Number((value / size).toPrecision(3))} ${unit}` : "0 s";
};
const endOf = (bar) => bar[AT_START] + bar[AT_TAKES];

class Timeline {
  constructor(figure, spec) {
    Object.assign(this, { figure, spec, from: 0, to: spec.end, selected: new Set(), area: null });
    this.numbers = new Map(spec.bars.map((bar, number) => [bar, number]));
    this.lanes = spec.streams.map((_, lane) => spec.bars.filter((bar) => bar[AT_LANE] === lane));
    const names = { role: "application", tabindex: "0", "aria-label": "Timeline", "aria-describedby": "keys" };
    this.svg = drawn("svg", { ...names, class: "timeline" });
    this.told = element("div", { class: "told", role: "status" });
    const legend = spec.kinds.map(([name, colour], kind) => this.key(name, colour, kind));
    const shown = [this.controls(), element("p", { class: "legend" }, ...legend), this.svg, this.told];
    figure.before(element("div", { class: "live" }, ...shown));
    figure.classList.add("on-paper");
    this.svg.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && this.press(event.key)) event.preventDefault();
    });
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.drag(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  controls() {
    const keys = [
      ["+", "zoom in", "w"],
      ["−", "zoom out", "s"],
      ["‹", "earlier", "a"],
      ["›", "later", "d"],
      ["all", "all of the step", "0"],
    ];
    const buttons = keys.map(([text, label, key]) =>
      button({ class: "plain", "aria-label": label }, text, () => this.press(key)),
    );
    return element("div", { class: "bar" }, ...buttons, element("span", { id: "keys" }, KEYS));
  }

  key(name, colour, kind) {
    const sum = this.spec.bars.reduce((sum, bar) => sum + (bar[AT_KIND] === kind ? bar[AT_TAKES] : 0), 0);
    const swatch = drawn(
      "svg",
      { class: "swatch", "aria-hidden": "true" },
      drawn("rect", { width: 11, height: 11, rx: 2, fill: colour }),
    );
    return element("span", {}, swatch, `${name} ${seconds(sum)}`);
  }

  // Those of a row: of its op, its collectives, its line; where it has none, those of its loop, or what else is near.
  barsOf(place) {
    const own = this.barsNamed((name) => placeByName.get(name) === place);
    return own.length || !place ? own : this.barsNamed((name) => place.near.has(placeByName.get(name)));
  }

  barsNamed(isIts) {
    return this.spec.bars.filter((bar) => this.namesOf(bar).some(isIts));
  }

  namesOf(bar) {
    const what = bar[AT_WHAT];
    const line = this.spec.lines[bar[AT_LINE]];
    return [
      ...(Array.isArray(what) ? what.map((number) => `c${number}`) : [`v-${what}`]),
      ...(line ? [`l-${line}`] : []),
    ];
  }

  // "all-reduce #3", "%dot.2".
  nameOf(bar) {
    const what = bar[AT_WHAT];
    if (!Array.isArray(what)) return `%${what}`;
    return `${this.spec.kinds[bar[AT_KIND]][0]} ${what.map((number) => `#${number}`).join(" ")}`;
  }

  titleOf(bar) {
    return this.nameOf(bar) + (bar[AT_COUNT] > 1 ? ` and ${bar[AT_COUNT] - 1} more` : "");
  }

  get width() {
    return Math.max(100, this.svg.clientWidth - MARGIN - 8);
  }

  x(moment) {
    return MARGIN + ((moment - this.from) / (this.to - this.from)) * this.width;
  }

  // Where the pointer is, in pixels from the left.
  at(event) {
    return event.clientX - this.svg.getBoundingClientRect().left;
  }

  moment(x) {
    return this.from + ((x - MARGIN) / this.width) * (this.to - this.from);
  }

  // So much is seen: from when to when.
  look(from, to) {
    const whole = this.spec.end;
    const wide = Math.min(whole, Math.max(whole * NEAREST, to - from));
    this.from = Math.min(Math.max(0, from - (wide - (to - from)) / 2), whole - wide);
    this.to = this.from + wide;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.look(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  press(key) {
    const wide = this.to - this.from;
    const act = {
      w: () => this.zoom(0.6),
      s: () => this.zoom(1 / 0.6),
      a: () => this.look(this.from - wide / 5, this.to - wide / 5),
      d: () => this.look(this.from + wide / 5, this.to + wide / 5),
      f: () => this.fit(),
      0: () => this.look(0, this.spec.end),
      Escape: () => this.choose([], null),
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      ArrowDown: () => this.step(0, 1),
      ArrowUp: () => this.step(0, -1),
    }[key];
    act?.();
    return Boolean(act);
  }

  wheel(event) {
    if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.moment(this.at(event)));
    else if (event.shiftKey || event.deltaX) {
      const by = ((event.deltaX || event.deltaY) / this.width) * (this.to - this.from);
      this.look(this.from + by, this.to + by);
    } else return;
    event.preventDefault();
  }

  // To the next bar of the lane, or to the bar of another lane at that time.
  step(along, across = 0) {
    const [at] = this.selected;
    const lane = this.lanes[at ? at[AT_LANE] : 0];
    const other = at && this.lanes[at[AT_LANE] + across];
    if (!at) return this.choose(lane.slice(0, 1));
    const next = across
      ? (other?.find((bar) => endOf(bar) > at[AT_START]) ?? other?.at(-1))
      : lane[lane.indexOf(at) + along];
    if (next) this.choose([next]);
    if (next && (next[AT_START] < this.from || endOf(next) > this.to)) {
      const wide = this.to - this.from;
      this.look(next[AT_START] - wide / 2, next[AT_START] + wide / 2);
    }
  }

  drag(event) {
    if (event.button) return;
    const begin = this.at(event),
      bar = this.spec.bars[event.target.dataset.bar];
    this.svg.setPointerCapture(event.pointerId);
    const span = (at) => [this.moment(Math.max(MARGIN, Math.min(begin, at))), this.moment(Math.max(begin, at))];
    const move = (now) => {
      if (Math.abs(this.at(now) - begin) > 3) this.choose(null, span(this.at(now)));
    };
    const stop = (now) => {
      this.svg.removeEventListener("pointermove", move);
      if (Math.abs(this.at(now) - begin) <= 3) this.choose(bar ? [bar] : [], null);
    };
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerup", stop, { once: true });
  }

  // Bars, or whatever runs in a span of time.
  choose(bars, span = null) {
    const isIn = (bar) => bar[AT_START] < span[1] && endOf(bar) > span[0];
    this.area = span;
    this.selected = new Set(bars ?? this.spec.bars.filter(isIn));
    this.draw();
    this.tell();
  }

  select(bars) {
    this.choose(bars);
    this.fit(4);
    pointAt(this.svg);
  }

  fit(room = 1.1) {
    const bars = [...this.selected];
    const [from, to] = this.area ?? [Math.min(...bars.map((bar) => bar[AT_START])), Math.max(...bars.map(endOf))];
    if (!bars.length && !this.area) return;
    const more = ((to - from) * (room - 1)) / 2;
    this.look(from - more, to + more);
  }

  tell() {
    const bars = [...this.selected];
    if (bars.length === 1 && !this.area) return this.tellOne(bars[0]);
    const [from, to] = this.area ?? [0, this.spec.end];
    const sums = new Map();
    for (const bar of bars) {
      const [sum, count] = sums.get(bar[AT_KIND]) ?? [0, 0];
      sums.set(bar[AT_KIND], [
        sum + Math.min(endOf(bar), to) - Math.max(bar[AT_START], from),
        count + (bar[AT_COUNT] ?? 1),
      ]);
    }
    const said = [...sums]
      .map(([kind, [sum, count]]) => `${this.spec.kinds[kind][0]} ${seconds(sum)} (${count})`)
      .join(", ");
    const head = this.area ? `${seconds(to - from)} selected: ` : "";
    this.told.textContent = bars.length || this.area ? head + (said || "nothing runs then") : "";
  }

  tellOne(bar) {
    const [place] = this.namesOf(bar)
      .map((name) => placeByName.get(name))
      .filter(Boolean);
    const line = this.spec.lines[bar[AT_LINE]];
    const times = `takes ${seconds(bar[AT_TAKES])}, from ${seconds(bar[AT_START])}`;
    const text = `${this.titleOf(bar)}${line ? ` at ${line}` : ""}: ${times}`;
    this.told.replaceChildren(element("p", {}, ...linked(text)), ...(place ? [linksOf(place)] : []));
  }

  draw() {
    const bottom = HEAD + this.lanes.length * (LANE + GAP);
    this.svg.setAttribute("height", bottom + AXIS);
    const area =
      this.area &&
      drawn("rect", {
        class: "area",
        x: this.x(this.area[0]),
        y: 0,
        width: Math.max(1, this.x(this.area[1]) - this.x(this.area[0])),
        height: bottom,
      });
    const names = this.spec.streams.map((name, lane) =>
      drawn("text", { x: 4, y: HEAD + lane * (LANE + GAP) + 21 }, name),
    );
    const bars = this.lanes.flatMap((bars, lane) => this.drawLane(bars, HEAD + lane * (LANE + GAP)));
    this.svg.replaceChildren(...this.drawAxis(bottom), ...(area ? [area] : []), ...bars, ...names);
  }

  // What is narrower than a pixel is drawn with its neighbours, in the colour of the longest.
  drawLane(bars, top) {
    const made = [];
    let group = [];
    const put = () => {
      if (group.length) made.push(...this.drawBar(group, top));
      group = [];
    };
    for (const bar of bars) {
      if (endOf(bar) < this.from || bar[AT_START] > this.to) continue;
      if (group.length && this.x(endOf(bar)) - this.x(group[0][AT_START]) >= 1) put();
      group.push(bar);
    }
    put();
    return made;
  }

  drawBar(group, top) {
    const main = group.reduce((a, b) => (b[AT_TAKES] > a[AT_TAKES] ? b : a));
    const left = Math.max(MARGIN, this.x(group[0][AT_START])),
      right = Math.min(MARGIN + this.width, this.x(endOf(group.at(-1))));
    const isChosen = !this.area && group.some((bar) => this.selected.has(bar));
    const title = drawn("title", {}, `${this.titleOf(main)}: ${seconds(main[AT_TAKES])}`);
    const box = drawn(
      "rect",
      {
        x: left,
        y: top,
        width: Math.max(isChosen ? 2 : 0.4, right - left - 0.25),
        height: LANE,
        fill: this.spec.kinds[main[AT_KIND]][1],
        "data-bar": this.numbers.get(main),
        ...(isChosen ? { class: "chosen" } : {}),
      },
      title,
    );
    const room = Math.floor((right - left - 8) / 7.3);
    if (room < 5) return [box];
    const name = this.titleOf(main);
    return [
      box,
      drawn(
        "text",
        { x: left + 4, y: top + 21, class: "name" },
        name.length > room ? `${name.slice(0, room - 1)}…` : name,
      ),
    ];
  }

  drawAxis(bottom) {
    const most = Math.max(2, Math.floor(this.width / 90)),
      least = (this.to - this.from) / most;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= least * 0.999);
    const made = [];
    for (let tick = Math.ceil(this.from / step) * step; tick <= this.to; tick += step) {
      const x = this.x(tick);
      made.push(drawn("path", { d: `M${x} 0V${bottom}`, class: "tick" }));
      made.push(drawn("text", { x, y: bottom + 14, "text-anchor": "middle" }, seconds(Number(tick.toPrecision(12)))));
    }
    return made;
  }
}
