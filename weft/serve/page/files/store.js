// Chats and settings in this browser. Each chat has an entry of its own, so tabs don't overwrite each other's.

const CHAT = "weft.chat.";
const SETTINGS = "weft.settings";

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

// False where the browser keeps nothing, or its space is full.
function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export const newChat = () => ({ id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "", messages: [], changed: Date.now() });

// All chats, the one that changed last first; messages are { role, content, … }.
export function allChats() {
  let keys = [];
  try {
    keys = Object.keys(localStorage);
  } catch {
    // The browser allows no storage: there are none.
  }
  return keys.filter((key) => key.startsWith(CHAT)).map(read)
    .filter((chat) => chat && Array.isArray(chat.messages)).sort((a, b) => b.changed - a.changed);
}

export function saveChat(chat) {
  chat.changed = Date.now();
  return write(CHAT + chat.id, chat);
}

export const deleteChat = (id) => localStorage.removeItem(CHAT + id);
export const isChatKey = (key) => key === null || key.startsWith(CHAT);
export const settings = () => read(SETTINGS) || {};
export const saveSettings = (values) => write(SETTINGS, values);

// The key is forgotten with the tab.
export function apiKey() {
  try {
    return sessionStorage.getItem("weft.key") || "";
  } catch {
    return "";
  }
}
export function setApiKey(key) {
  try {
    sessionStorage.setItem("weft.key", key);
  } catch {
    // Then it is asked for again.
  }
}
