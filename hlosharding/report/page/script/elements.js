// Elements, and texts in them: whatever a program says gets into the page by `append` of a text, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const data = JSON.parse(document.getElementById("data").textContent);

const withAttributes = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const element = (tag, attributes = {}, ...children) =>
  withAttributes(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) =>
  withAttributes(document.createElementNS(SVG, tag), attributes, children);
const button = (attributes, text, pressed) => {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", pressed);
  return made;
};

const textOf = (value) => (Array.isArray(value) ? value[0] : value);
const icon = (number) =>
  drawn("svg", { class: "icon", "aria-hidden": "true" }, drawn("use", { href: `#icon-${number}` }));

// What just happened, for those who hear the page.
const say = (text) => {
  document.getElementById("said").textContent = text;
};
