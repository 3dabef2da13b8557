// What is shown of a chat.

import { element, showMarkdown } from "./markdown.js";

export const find = (id) => document.getElementById(id);

export function button(label, action, name) {
  const node = element("button", label);
  node.type = "button";
  node.className = "quiet";
  node.addEventListener("click", action);
  if (name) node.setAttribute("aria-label", name);
  return node;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages without TLS have no clipboard of their own.
    const field = element("textarea", text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

export function statsText(stats) {
  if (!stats || !stats.tokens) return "";
  const parts = [`${stats.tokens} token${stats.tokens === 1 ? "" : "s"}`];
  if (stats.seconds > 0 && stats.tokens > 1) parts.push(`${((stats.tokens - 1) / stats.seconds).toFixed(1)} tokens/s`);
  parts.push(`first after ${stats.first.toFixed(2)} s`);
  if (stats.prompt) parts.push(`${stats.prompt} of prompt`);
  return parts.join(" · ");
}

const CUT = "The answer was cut: the limit of tokens or the context is reached.";

function showThought(node, text) {
  let details = node.querySelector("details");
  if (!text || details) {
    if (details) details.lastChild.textContent = text;
    return;
  }
  const thought = element("div", text);
  thought.className = "thought";
  details = element("details", element("summary", "Thinking"), thought);
  node.prepend(details);
}

// Shows the message in its node as far as it has come.
export function showMessage(node, message) {
  const body = node.querySelector(".body");
  if (message.role === "user") {
    body.textContent = message.content;
    return;
  }
  showThought(node, message.thought);
  showMarkdown(body, message.content);
}

// A message with its tools; `actions` are { edit, retry }, each for what may be done with it.
export function messageNode(message, actions) {
  const body = element("div");
  body.className = "body";
  const tools = element("div");
  tools.className = "tools";
  const node = element("article", body, tools);
  node.className = `message ${message.role}`;
  node.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
  showMessage(node, message);
  if (actions.edit) tools.append(button("Edit", actions.edit, "Edit the question"));
  if (message.role === "assistant" && message.content) {
    tools.append(button("Copy", (event) => copied(event.target, message.content), "Copy the answer"));
  }
  if (actions.retry) tools.append(button("Try again", actions.retry));
  const stats = element("span", statsText(message.stats));
  stats.className = "stats";
  const failed = element("span", message.failed || (message.reason === "length" ? CUT : ""));
  failed.className = "failed";
  if (message.role === "assistant") tools.append(stats, failed);
  return node;
}

async function copied(node, text) {
  await copyText(text);
  node.textContent = "Copied";
  setTimeout(() => { node.textContent = "Copy"; }, 1500);
}

// Copy buttons of code, wherever they are made.
export function obeyCopyButtons(container) {
  container.addEventListener("click", (event) => {
    if (event.target.dataset && event.target.dataset.copy === "code") {
      copied(event.target, event.target.closest(".block").querySelector("code").textContent);
    }
  });
}

// The field in which a question is changed.
export function editNode(text, save, cancel) {
  const field = element("textarea", text);
  field.rows = Math.min(12, text.split("\n").length + 1);
  field.setAttribute("aria-label", "Your question");
  const send = button("Send", () => save(field.value));
  send.classList.remove("quiet");
  const row = element("div", button("Cancel", cancel), send);
  row.className = "row";
  const node = element("div", field, row);
  node.className = "edit";
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(field.value);
    event.stopPropagation();
  });
  return node;
}
