// Rows have names (`report.html#c12`), and rows that have to do with each other lead to each other.
const places = [];
const placeByName = new Map();

const enterTable = (spec, title, parent) => {
  spec.places = spec.rows.map((_, number) => {
    const [names, related] = spec.threads?.[number] ?? [[], []];
    const place = {
      spec,
      number,
      title,
      parent,
      names,
      related,
      near: new Set(),
      name: names[0] ?? `row-${places.length}`,
    };
    places.push(place);
    for (const name of [place.name, ...names]) if (!placeByName.has(name)) placeByName.set(name, place);
    for (const part of spec.below?.[number] ?? []) if (part.table) enterTable(part.table, title, place);
    return place;
  });
};

const relatePlaces = () => {
  for (const place of places) {
    for (const other of place.related.map((name) => placeByName.get(name))) {
      if (!other || other === place) continue;
      place.near.add(other);
      other.near.add(place);
    }
  }
};

// Names of collectives, values and lines that a text has, as links where the page has such a row.
const NAMED = /%[\w.-]+|#\d+|[^\s()'",%]+:\d+/g;
const PREFIX = { "%": "v-", "#": "c" };
const nameOfToken = (token) => (token[0] in PREFIX ? PREFIX[token[0]] + token.slice(1) : `l-${token}`);

const linked = (text) => {
  const made = [];
  let end = 0;
  for (const { 0: token, index } of text.matchAll(NAMED)) {
    if (!placeByName.has(nameOfToken(token))) continue;
    made.push(text.slice(end, index), linkTo(nameOfToken(token), token));
    end = index + token.length;
  }
  return [...made, text.slice(end)];
};

const linkTo = (name, text) => {
  const link = element("a", { href: `#${encodeURIComponent(name)}` }, text);
  // The address may be this one already: then nothing changes, and yet the row is wanted.
  link.addEventListener("click", () => {
    if (link.hash === location.hash) goToAddress();
  });
  return link;
};

const WORDS = { c: "collective", v: "op", l: "line", m: "remedy", r: "copies", f: "function", g: "group" };
const titleOf = ({ name, spec, number }) => {
  const [kind] = /^(worst|[a-z])/.exec(name);
  const own = name.slice(kind.length).replace(/^-/, "");
  return kind === "worst"
    ? `finding: ${textOf(spec.rows[number][0])}`
    : `${WORDS[kind] ?? "row"} ${kind === "c" || kind === "m" ? "#" : ""}${own}`;
};

const MOST_NEAR = 12;
const NEAREST_FIRST = "wmcrfglv";
// From a row to all that has to do with it: to its own address, the timeline, the picture, other rows.
const linksOf = (place) => {
  const near = [...place.near].filter((other) => !other.name.startsWith("row-"));
  near.sort((a, b) => NEAREST_FIRST.indexOf(a.name[0]) - NEAREST_FIRST.indexOf(b.name[0]));
  const shown = near.slice(0, MOST_NEAR).map((other) => linkTo(other.name, titleOf(other)));
  const ops = [place, ...near].flatMap((other) => other.names).filter((name) => name.startsWith("v-"));
  const picture = ops.map((name) => `p-${name.slice(2)}`).find((id) => document.getElementById(id));
  const bars = timeline?.barsOf(place) ?? [];
  if (picture) shown.unshift(linkTo(picture, "in the picture"));
  if (bars.length) shown.unshift(linkTo(`t-${place.name}`, "in the timeline"));
  if (near.length > MOST_NEAR) shown.push(`and ${near.length - MOST_NEAR} more`);
  const self = element("a", { href: `#${encodeURIComponent(place.name)}`, class: "self" }, "link to this row");
  return element("p", { class: "thread" }, self, ...shown);
};

const unfold = (element) => {
  for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
};

const pointAt = (target) => {
  unfold(target);
  document.querySelectorAll(".target").forEach((old) => old.classList.remove("target"));
  target.classList.add("target");
  if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
  target.scrollIntoView({ block: "center" });
};

const rowOf = (place) => {
  if (place.parent) rowOf(place.parent);
  return place.spec.shown?.reveal(place.number);
};

const goTo = (name) => {
  if (name.startsWith("t-") && timeline) return timeline.select(timeline.barsOf(placeByName.get(name.slice(2))));
  const target = placeByName.has(name) ? rowOf(placeByName.get(name)) : document.getElementById(name);
  if (!target) return;
  if (target.tagName !== "DETAILS") return pointAt(target);
  target.open = true;
  target.scrollIntoView();
};

const goToAddress = () => {
  let name = location.hash.slice(1);
  try {
    name = decodeURIComponent(name);
  } catch {
    /* it is no address of ours */
  }
  if (name) goTo(name);
};
