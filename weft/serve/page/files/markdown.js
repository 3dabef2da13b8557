// Markdown to nodes. Text of a model only ever becomes text nodes: no HTML of it is read, images are
// links, and links go to the web or to mail alone.

const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const INLINE = [
  [/^(`+)([^`](?:[\s\S]*?[^`])?)\1(?!`)/, (m) => element("code", m[2].trim() || m[2])],
  [/^!?\[([^\]]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)?)>?(?:\s+["'][^)]*)?\)/, (m) => link(m[2], inline(m[1]))],
  [/^<(https?:\/\/[^\s<>]+)>/, (m) => link(m[1], [m[1]])],
  [/^https?:\/\/(?:[^\s<>()]|\([^\s<>()]*\))*(?:[^\s<>().,:;!?'"\]]|\([^\s<>()]*\))/, (m) => link(m[0], [m[0]])],
  [/^(\*\*|__)(?=\S)([\s\S]*?\S)\1/, (m) => element("strong", ...inline(m[2]))],
  [/^~~(?=\S)([\s\S]*?\S)~~/, (m) => element("del", ...inline(m[1]))],
  [/^\*(?=[^\s*])([^*]*(?:\*\*[^*]*\*\*[^*]*)*[^\s*])\*(?!\*)/, (m) => element("em", ...inline(m[1]))],
  [/^\*(?=[^\s*])([^\s*])\*(?!\*)/, (m) => element("em", m[1])],
  [/^ {2,}\n|^\\\n/, () => element("br")],
  [/^\\([!-/:-@[-`{-~])/, (m) => m[1]],
];
const MAY_BEGIN = /[`![<*_~\\ h]/;

export function element(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function link(address, children) {
  if (!SAFE_LINK.test(address)) return element("span", ...children);
  const node = element("a", ...children);
  node.href = address;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

// Nodes and texts of what stands on a line.
function inline(text) {
  const nodes = [];
  let plain = "";
  for (let at = 0; at < text.length;) {
    const begins = MAY_BEGIN.test(text[at]) && !(text[at] === "_" && /\w/.test(text[at - 1] || ""));
    const rest = begins ? text.slice(at) : "";
    const rule = begins && INLINE.find(([pattern]) => pattern.test(rest));
    if (!rule) {
      plain += text[at++];
      continue;
    }
    const match = rule[0].exec(rest);
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(rule[1](match));
    at += match[0].length;
  }
  if (plain) nodes.push(plain);
  return nodes;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const DIVIDER = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
  DIVIDER.test(lines[at + 1]) && lines[at + 1].includes("|");
const beginsBlock = (lines, at) => FENCE.test(lines[at]) || HEADING.test(lines[at]) || RULE.test(lines[at]) ||
  QUOTE.test(lines[at]) || ITEM.test(lines[at]) || isTable(lines, at);

// Lines of the block that begins at `at`: where it ends.
function blockEnd(lines, at) {
  const fence = FENCE.exec(lines[at]);
  if (fence) {
    const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
    for (let end = at + 1; end < lines.length; end++) if (close.test(lines[end])) return end + 1;
    return lines.length;
  }
  if (HEADING.test(lines[at]) || RULE.test(lines[at])) return at + 1;
  let end = at + 1;
  if (QUOTE.test(lines[at])) {
    while (end < lines.length && QUOTE.test(lines[end])) end++;
  } else if (ITEM.test(lines[at])) {
    while (end < lines.length && (ITEM.test(lines[end]) || /^\s+\S/.test(lines[end]) ||
      (!lines[end].trim() && end + 1 < lines.length && (ITEM.test(lines[end + 1]) || /^ {2,}\S/.test(lines[end + 1]))))) end++;
  } else if (isTable(lines, at)) {
    while (end < lines.length && lines[end].includes("|")) end++;
  } else {
    while (end < lines.length && lines[end].trim() && !beginsBlock(lines, end)) end++;
  }
  return end;
}

function codeBlock(lines) {
  const fence = FENCE.exec(lines[0]);
  const isClosed = lines.length > 1 && lines[lines.length - 1].trim().startsWith(fence[1]);
  const text = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  const copy = element("button", "Copy");
  copy.type = "button";
  copy.className = "quiet";
  copy.dataset.copy = "code";
  const bar = element("div", element("span", fence[2] || "text"), copy);
  bar.className = "bar";
  const pre = element("pre", element("code", text));
  pre.tabIndex = 0;
  const block = element("div", bar, pre);
  block.className = "block";
  return block;
}

function list(lines) {
  const first = ITEM.exec(lines[0]);
  const isNumbered = /\d/.test(first[2]);
  const node = element(isNumbered ? "ol" : "ul");
  if (isNumbered) node.start = parseInt(first[2], 10);
  let item = [];
  const indent = first[1].length;
  const finish = () => {
    if (!item.length) return;
    const children = blocks(item).map(render);
    const isTight = children[0] && children[0].nodeName === "P";
    if (isTight) children.splice(0, 1, ...children[0].childNodes);
    node.append(element("li", ...children));
  };
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= indent + 1) {
      finish();
      item = [line.slice(match[0].length)];
    } else {
      item.push(line.replace(/^ {1,4}/, ""));
    }
  }
  finish();
  return node;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));

function table(lines) {
  const sides = cells(lines[1]).map((cell) => cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "");
  const row = (line, name) => {
    const texts = cells(line);
    return element("tr", ...sides.map((side, i) => {
      const node = element(name, ...inline(texts[i] || ""));
      if (side) node.className = side;
      if (name === "th") node.scope = "col";
      return node;
    }));
  };
  const node = element("table", element("thead", row(lines[0], "th")),
    element("tbody", ...lines.slice(2).map((line) => row(line, "td"))));
  const frame = element("div", node);
  frame.className = "table";
  frame.tabIndex = 0;
  return frame;
}

// The source of each top-level block.
function blocks(lines) {
  const found = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const end = blockEnd(lines, at);
    found.push(lines.slice(at, end));
    at = end;
  }
  return found;
}

function render(lines) {
  if (FENCE.test(lines[0])) return codeBlock(lines);
  const heading = HEADING.exec(lines[0]);
  if (heading) return element(`h${Math.min(heading[1].length + 2, 5)}`, ...inline(heading[2]));
  if (RULE.test(lines[0])) return element("hr");
  if (QUOTE.test(lines[0])) return element("blockquote", ...blocks(lines.map((line) => line.replace(QUOTE, ""))).map(render));
  if (ITEM.test(lines[0])) return list(lines);
  if (isTable(lines, 0)) return table(lines);
  return element("p", ...inline(lines.join("\n")));
}

// Shows a text that grows: only blocks that have changed are made anew.
export function showMarkdown(container, text) {
  const wanted = blocks(text.replace(/\r\n?/g, "\n").split("\n"));
  const sources = container.sources || [];
  let same = 0;
  while (same < wanted.length && sources[same] === wanted[same].join("\n")) same++;
  while (container.childNodes.length > same) container.lastChild.remove();
  container.append(...wanted.slice(same).map(render));
  container.sources = wanted.map((lines) => lines.join("\n"));
}
