// Tables come as data: they sort, filter, turn pages, and open below their rows.
const PAGE = 15;
const LINKED = /^(text|prose|location|code)/;

// The first of a row names it.
const cell = (value, column, number) => {
  const made = element(number ? "td" : "th", number ? { class: column.kind } : { class: column.kind, scope: "row" });
  if (column.kind.startsWith("sharding") && Array.isArray(value)) made.append(icon(value[1]));
  const text = LINKED.test(column.kind) ? linked(textOf(value)) : [textOf(value)];
  if (column.kind.startsWith("code")) made.append(copier(textOf(value)), " ", element("code", {}, ...text));
  else made.append(...text);
  return made;
};

// Where the browser does not let us copy, the text is selected.
const copier = (text) => {
  const made = button({ class: "plain", "aria-label": `copy ${text}` }, "copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      getSelection().selectAllChildren(made.nextElementSibling);
      say("selected");
    }
  });
  return made;
};

const tree = (text) => {
  const [first, ...rest] = text.split("\n");
  return element(
    "pre",
    { class: "tree" },
    element("b", {}, ...linked(first)),
    ...linked(rest.map((line) => "\n" + line).join("")),
  );
};

// One table: its rows in some order, of which some pass the filter, of which one page is shown.
class Table {
  constructor(spec, place) {
    this.spec = spec;
    this.place = place;
    this.order = spec.rows.map((_, number) => number);
    this.open = new Set();
    this.page = 0;
    this.words = "";
    this.found = this.order;
    this.sorted = null;
    this.hasOpeners = Boolean(spec.below || spec.threads?.some(Boolean));
    spec.shown = this;
    this.build();
    this.show();
  }

  build() {
    const { spec } = this;
    this.heads = spec.columns.map((column, number) => {
      const head = element("th", { class: column.kind, scope: "col" });
      if (spec.rows.length > 1 && column.heading.trim()) {
        head.append(button({}, column.heading, () => this.sort(number)));
      } else head.append(column.heading);
      return head;
    });
    const heading = element("tr", {}, ...this.corner(), ...this.heads);
    this.body = element("tbody");
    this.body.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close(event);
    });
    const table = element("table");
    table.append(element("thead", {}, heading), this.body);
    if (spec.total) {
      const sums = spec.total.map((value, number) => cell(value, spec.columns[number], number));
      const foot = element("tr", {}, ...this.corner(), ...sums);
      table.append(element("tfoot", {}, foot));
    }
    const label = spec.title || spec.places[0]?.title || "table";
    const scrolls = element("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": label }, table);
    // What opens below a row is as wide as what is seen of the table, not as the table.
    const seen = () => scrolls.style.setProperty("--seen", `${scrolls.clientWidth}px`);
    new ResizeObserver(seen).observe(scrolls);
    const caption = spec.title ? [element("p", { class: "caption" }, spec.title)] : [];
    this.place.replaceChildren(...caption, ...this.controls(), scrolls);
    if (spec.left_out) {
      const said = `${spec.left_out.toLocaleString("en")} more rows are left out of this page.`;
      this.place.append(element("p", { class: "note" }, said));
    }
  }

  corner() {
    return this.hasOpeners ? [element("td", { class: "opener" })] : [];
  }

  controls() {
    if (this.spec.rows.length <= 10) return [];
    this.filter = element("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows" });
    this.filter.addEventListener("input", () => {
      this.words = this.filter.value.toLowerCase();
      this.page = 0;
      this.show();
    });
    this.count = element("span", { "aria-live": "polite" });
    this.before = button({ class: "plain", "aria-label": "rows before" }, "‹", () => this.turn(-1));
    this.after = button({ class: "plain", "aria-label": "rows after" }, "›", () => this.turn(1));
    return [element("div", { class: "bar" }, this.filter, this.count, this.before, this.after)];
  }

  turn(by) {
    this.page += by;
    this.show();
  }

  sort(column) {
    const isFigure = this.spec.columns[column].kind.startsWith("figure");
    const first = isFigure ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const next = this.sorted?.column !== column ? first : this.sorted.way === first ? other : null;
    this.sorted = next && { column, way: next };
    this.order = this.spec.rows.map((_, number) => number);
    if (next) {
      const sign = next === "ascending" ? 1 : -1;
      const key = (number) => {
        const value = this.spec.rows[number][column];
        return isFigure ? (Array.isArray(value) ? value[1] : -Infinity) : textOf(value);
      };
      const compare = isFigure ? (a, b) => a - b : (a, b) => a.localeCompare(b, "en", { numeric: true });
      this.order.sort((a, b) => sign * compare(key(a), key(b)) || a - b);
    }
    this.heads.forEach((head, number) => {
      if (next && number === column) head.setAttribute("aria-sort", next);
      else head.removeAttribute("aria-sort");
    });
    this.page = 0;
    this.show();
  }

  passes(number) {
    return !this.words || this.spec.rows[number].some((value) => textOf(value).toLowerCase().includes(this.words));
  }

  show() {
    const found = this.order.filter((number) => this.passes(number));
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const shown = found.slice(this.page * PAGE, (this.page + 1) * PAGE);
    this.body.replaceChildren(...shown.flatMap((number) => this.rows(number)));
    if (!shown.length) {
      const width = this.spec.columns.length + this.corner().length;
      const said = this.spec.rows.length ? "no row has that" : this.spec.empty || "nothing";
      this.body.append(element("tr", {}, element("td", { class: "empty", colspan: width }, said)));
    }
    if (this.filter) this.tell(found.length, shown.length, pages);
  }

  tell(found, shown, pages) {
    const start = this.page * PAGE;
    const range = pages > 1 ? `${start + 1}–${start + shown} of ${found.toLocaleString("en")}` : `${found} rows`;
    this.count.textContent = range;
    this.before.hidden = this.after.hidden = pages < 2;
    this.before.disabled = this.page === 0;
    this.after.disabled = this.page === pages - 1;
  }

  rows(number) {
    const { spec } = this;
    const cells = spec.rows[number].map((value, place) => cell(value, spec.columns[place], place));
    if (!this.hasOpeners) return [element("tr", { "data-row": number }, ...cells)];
    const opener = element("td", { class: "opener" });
    const row = element("tr", { "data-row": number }, opener, ...cells);
    if (!spec.below?.[number].length && !spec.threads?.[number]) return [row];
    const isOpen = this.open.has(number);
    const label = `more of ${textOf(spec.rows[number][0])}`;
    opener.append(button({ "aria-expanded": isOpen, "aria-label": label }, "▸", () => this.toggle(number)));
    return isOpen ? [row, this.below(number)] : [row];
  }

  rowOf(number) {
    return this.body.querySelector(`:scope > [data-row="${number}"]`);
  }

  toggle(number) {
    const row = this.rowOf(number);
    const isOpen = !this.open.delete(number);
    if (isOpen) {
      this.open.add(number);
      row.after(this.below(number));
    } else row.nextElementSibling.remove();
    row.querySelector(":scope > .opener button").setAttribute("aria-expanded", isOpen);
  }

  // The row in which one is.
  close(event) {
    const at = event.target.closest("tr");
    const row = at.className === "below" ? at.previousElementSibling : at;
    if (row.parentElement !== this.body || !this.open.has(Number(row.dataset.row))) return;
    event.stopPropagation();
    this.toggle(Number(row.dataset.row));
    row.querySelector(":scope > .opener button").focus();
  }

  // Turns to the row, whatever is filtered, and opens it.
  reveal(number) {
    if (!this.passes(number)) this.words = this.filter.value = "";
    const found = this.order.filter((each) => this.passes(each));
    this.page = Math.floor(found.indexOf(number) / PAGE);
    this.show();
    if (!this.open.has(number) && this.rowOf(number)?.querySelector(":scope > .opener button")) this.toggle(number);
    return this.rowOf(number);
  }

  // What a narrow screen has no column for.
  leftOut(number) {
    const cells = this.spec.columns.flatMap((column, place) => {
      const text = textOf(this.spec.rows[number][place]);
      if (!column.kind.includes("minor") || !text.trim()) return [];
      return [element("dt", {}, column.heading), element("dd", {}, ...linked(text))];
    });
    return element("dl", { class: "left-out" }, ...cells);
  }

  below(number) {
    const content = element("div", { class: "opened" });
    content.append(this.leftOut(number));
    if (this.spec.threads?.[number]) content.append(linksOf(this.spec.places[number]));
    for (const part of this.spec.below?.[number] ?? []) {
      if (part.tree !== undefined) content.append(tree(part.tree));
      else {
        const place = element("div", { class: "table" });
        content.append(place);
        new Table(part.table, place);
      }
    }
    const wide = element("td", { colspan: this.spec.columns.length + 1 }, content);
    return element("tr", { class: "below" }, wide);
  }
}
