// The page: chats, questions and answers.

import { answer, servedModel } from "./client.js";
import { element } from "./markdown.js";
import * as store from "./store.js";
import { button, editNode, find, messageNode, obeyCopyButtons, showMessage } from "./view.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_completion_tokens", "seed"];
const TITLE_LENGTH = 60;

let chat = store.newChat();
let writing = null; // { chat, controller } while an answer comes
let model = null;

// ---- settings

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const theme = store.settings().theme || (prefersDark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
}

function openSettings() {
  const values = store.settings();
  for (const name of ["system", "theme", ...NUMBERS]) find(name).value = values[name] ?? "";
  find("key").value = store.apiKey();
  find("settings").showModal();
}

function saveSettings() {
  const values = { system: find("system").value, theme: find("theme").value };
  for (const name of NUMBERS) if (find(name).value !== "") values[name] = Number(find(name).value);
  if (!store.saveSettings(values)) notice("The browser keeps no settings for this page.");
  store.setApiKey(find("key").value.trim());
  applyTheme();
  connect();
}

// ---- what is said besides messages

function notice(text) {
  find("notice").textContent = text;
  find("notice").hidden = !text;
}

const announce = (text) => { find("announce").textContent = text; };

async function connect() {
  try {
    model = await servedModel(store.apiKey());
    find("model").textContent = model.id;
    notice("");
  } catch (error) {
    model = null;
    find("model").textContent = "";
    if (error.status === 401) return askForKey(error);
    notice(error.status ? error.message : "The server does not answer.");
    setTimeout(() => { if (!model) connect(); }, 2000);
  }
}

function askForKey(error) {
  notice(`The server asks for an API key (${error.message}).`);
  if (!find("settings").open) openSettings();
  find("key").focus();
}

// ---- list of chats

function showChats() {
  const chats = store.allChats();
  find("chats").replaceChildren(...chats.map((each) => {
    const open = button(each.title || "New chat", () => openChat(each));
    open.classList.add("open");
    const remove = button("×", () => removeChat(each), `Delete ${each.title}`);
    remove.classList.add("delete");
    const item = element("li", open, remove);
    if (each.id === chat.id) {
      item.className = "current";
      open.setAttribute("aria-current", "true");
    }
    return item;
  }));
}

function removeChat(each) {
  if (!confirm(`Delete “${each.title}”?`)) return;
  if (writing && writing.chat.id === each.id) stop();
  store.deleteChat(each.id);
  if (each.id === chat.id) openChat(store.newChat());
  else showChats();
}

function openChat(other) {
  chat = writing && writing.chat.id === other.id ? writing.chat : other;
  toggleSidebar(false);
  showTalk();
  showChats();
  find("question").focus();
}

function save(which) {
  if (!store.saveChat(which)) notice("The browser’s storage is full: this chat is not kept. Delete other chats.");
  showChats();
}

// ---- messages

function showTalk() {
  const last = chat.messages.length - 1;
  const isBusy = Boolean(writing);
  find("title").textContent = chat.title || "New chat";
  const nodes = chat.messages.map((message, index) => messageNode(message, {
    edit: message.role === "user" && !isBusy ? () => edit(index) : null,
    retry: message.role === "assistant" && index === last && !isBusy ? retry : null,
  }));
  if (!nodes.length) {
    const empty = element("div", element("strong", "What would you like to know?"), "The model runs on this server; chats stay in this browser.");
    empty.className = "empty";
    nodes.push(empty);
  }
  find("talk").replaceChildren(...nodes);
  if (writing && writing.chat === chat) find("talk").lastChild.classList.add("writing");
  find("send").hidden = isBusy;
  find("stop").hidden = !isBusy;
  toEnd();
}

function toEnd() {
  find("scroll").scrollTop = find("scroll").scrollHeight;
}

function edit(index) {
  const node = find("talk").children[index];
  const field = editNode(chat.messages[index].content, (text) => {
    if (!text.trim() || writing) return;
    chat.messages.length = index;
    ask(text);
  }, () => { showTalk(); find("question").focus(); });
  node.replaceChildren(field);
  field.querySelector("textarea").focus();
}

function retry() {
  if (writing) return;
  chat.messages.pop();
  respond();
}

function ask(text) {
  if (!chat.title) chat.title = text.trim().replace(/\s+/g, " ").slice(0, TITLE_LENGTH);
  chat.messages.push({ role: "user", content: text });
  respond();
}

// What the model is told of the talk. An answer that failed before its first word is left out, and
// the questions around it become one: many models' templates want questions and answers in turns.
function historyOf(messages) {
  const history = [];
  for (const { role, content, failed } of messages) {
    if (failed && !content) continue;
    const last = history.at(-1);
    if (last && last.role === "user" && role === "user") last.content += `\n\n${content}`;
    else history.push({ role, content });
  }
  return history;
}

function requestFor(messages) {
  const values = store.settings();
  const request = { messages: historyOf(messages) };
  if (values.system) request.messages.unshift({ role: "system", content: values.system });
  for (const name of NUMBERS) if (values[name] !== undefined) request[name] = values[name];
  return request;
}

// Draws at most once a frame, and follows the end unless the reader has scrolled away from it.
function painter(owner, message) {
  let isDue = false;
  return () => {
    if (isDue || chat !== owner) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      const node = find("talk").lastElementChild;
      if (chat !== owner || !node) return;
      const scroll = find("scroll");
      const isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
      showMessage(node, message);
      if (isAtEnd) toEnd();
    });
  };
}

async function respond() {
  const owner = chat;
  const request = requestFor(owner.messages);
  const message = { role: "assistant", content: "", thought: "" };
  owner.messages.push(message);
  writing = { chat: owner, controller: new AbortController() };
  notice("");
  save(owner);
  showTalk();
  announce("The answer is being written.");
  const paint = painter(owner, message);
  try {
    const result = await answer(request, store.apiKey(), writing.controller.signal, (delta) => {
      message.content += delta.content || "";
      message.thought += delta.reasoning_content || "";
      paint();
    });
    finishMessage(message, result);
  } catch (error) {
    message.failed = error.name === "AbortError" ? "Stopped." : error.message;
    if (error.status === 401) askForKey(error);
  }
  writing = null;
  announce(message.failed || `Answer: ${message.content}`);
  save(owner);
  if (chat === owner || find("stop").hidden === false) showTalk();
}

function finishMessage(message, result) {
  message.reason = result.reason;
  if (result.usage) {
    message.stats = { tokens: result.usage.completion_tokens, prompt: result.usage.prompt_tokens, first: result.first, seconds: result.seconds };
  }
}

function stop() {
  if (writing) writing.controller.abort();
}

// ---- controls

function toggleSidebar(isOpen) {
  find("sidebar").classList.toggle("open", isOpen);
  find("open-sidebar").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) find("close-sidebar").focus();
}

function grow() {
  const field = find("question");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function submit(event) {
  event.preventDefault();
  const text = find("question").value;
  if (!text.trim() || writing) return;
  find("question").value = "";
  grow();
  ask(text);
}

function obeyKeys(event) {
  if (event.key === "Escape" && !find("settings").open) {
    if (find("sidebar").classList.contains("open")) {
      toggleSidebar(false);
      find("open-sidebar").focus();
    } else {
      stop();
    }
  }
}

function obeyQuestionKeys(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
}

function start() {
  applyTheme();
  prefersDark.addEventListener("change", applyTheme);
  find("composer").addEventListener("submit", submit);
  find("question").addEventListener("input", grow);
  find("question").addEventListener("keydown", obeyQuestionKeys);
  find("stop").addEventListener("click", () => { stop(); find("question").focus(); });
  find("new-chat").addEventListener("click", () => openChat(store.newChat()));
  find("open-settings").addEventListener("click", openSettings);
  find("settings-form").addEventListener("submit", saveSettings);
  find("close-settings").addEventListener("click", () => find("settings").close());
  find("open-sidebar").addEventListener("click", () => toggleSidebar(true));
  find("close-sidebar").addEventListener("click", () => { toggleSidebar(false); find("open-sidebar").focus(); });
  document.addEventListener("keydown", obeyKeys);
  window.addEventListener("storage", (event) => { if (store.isChatKey(event.key)) showChats(); });
  obeyCopyButtons(find("talk"));
  showTalk();
  showChats();
  connect();
  find("question").focus();
}

start();
