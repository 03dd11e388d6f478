"use strict";
// Tables come as data; whatever stands in them is text, and only `textContent` shows it.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 15;
  const SVG = "http://www.w3.org/2000/svg";

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const textOf = (value) => (Array.isArray(value) ? value[0] : value);

  const icon = (number) => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS(SVG, "use");
    use.setAttribute("href", `#icon-${number}`);
    svg.append(use);
    return svg;
  };

  const cell = (value, column) => {
    const made = element("td", { class: column.kind });
    if (column.kind.startsWith("sharding") && Array.isArray(value)) made.append(icon(value[1]));
    made.append(textOf(value));
    return made;
  };

  const tree = (text) => {
    const [first, ...rest] = text.split("\n");
    return element("pre", { class: "tree" }, element("b", {}, first), rest.length ? "\n" + rest.join("\n") : "");
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
      this.build();
      this.show();
    }

    build() {
      const { spec } = this;
      this.heads = spec.columns.map((column, number) => {
        const head = element("th", { class: column.kind, scope: "col" });
        if (spec.rows.length > 1 && column.heading.trim()) {
          const button = element("button", { type: "button" }, column.heading);
          button.addEventListener("click", () => this.sort(number));
          head.append(button);
        } else head.append(column.heading);
        return head;
      });
      const heading = element("tr", {}, ...(spec.below ? [element("th", { class: "opener" })] : []), ...this.heads);
      this.body = element("tbody");
      const table = element("table");
      table.append(element("thead", {}, heading), this.body);
      if (spec.total) {
        const sums = spec.total.map((value, number) => cell(value, spec.columns[number]));
        const foot = element("tr", {}, ...(spec.below ? [element("td", { class: "opener" })] : []), ...sums);
        table.append(element("tfoot", {}, foot));
      }
      const label = spec.title || "table";
      const scrolls = element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": label }, table);
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

    controls() {
      if (this.spec.rows.length <= 10) return [];
      this.filter = element("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows" });
      this.filter.addEventListener("input", () => {
        this.words = this.filter.value.toLowerCase();
        this.page = 0;
        this.show();
      });
      this.count = element("span", { "aria-live": "polite" });
      this.before = element("button", { type: "button", class: "plain", "aria-label": "rows before" }, "‹");
      this.after = element("button", { type: "button", class: "plain", "aria-label": "rows after" }, "›");
      this.before.addEventListener("click", () => this.turn(-1));
      this.after.addEventListener("click", () => this.turn(1));
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
        const width = this.spec.columns.length + (this.spec.below ? 1 : 0);
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
      const cells = spec.rows[number].map((value, place) => cell(value, spec.columns[place]));
      if (!spec.below) return [element("tr", {}, ...cells)];
      const opener = element("td", { class: "opener" });
      const row = element("tr", {}, opener, ...cells);
      if (!spec.below[number].length) return [row];
      const isOpen = this.open.has(number);
      const button = element("button", { type: "button", "aria-expanded": isOpen, "aria-label": "more of this row" }, "▸");
      button.addEventListener("click", () => this.toggle(number, row, button));
      opener.append(button);
      return isOpen ? [row, this.below(number)] : [row];
    }

    toggle(number, row, button) {
      const isOpen = !this.open.delete(number);
      if (isOpen) {
        this.open.add(number);
        row.after(this.below(number));
      } else row.nextElementSibling.remove();
      button.setAttribute("aria-expanded", isOpen);
    }

    below(number) {
      const content = element("div", { class: "opened" });
      for (const part of this.spec.below[number]) {
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

  document.querySelectorAll("[data-table]").forEach((place) => new Table(data.tables[place.dataset.table], place));

  const theme = document.getElementById("theme");
  const prefers = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (prefers.matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = isDark() ? "light" : "dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  prefers.addEventListener("change", name);
  name();

  // A link to a folded section unfolds it.
  const unfold = () => document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
  window.addEventListener("hashchange", unfold);
  unfold();
})();
