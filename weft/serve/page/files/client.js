// The server's API, as far as the page uses it.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function failure(response) {
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not the API's form: the text is all there is.
  }
  return new ApiError(response.status, message || `${response.status} ${response.statusText}`);
}

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

// { id, max_model_len } of the model that is served.
export async function servedModel(key) {
  const response = await fetch("/v1/models", { headers: headers(key), cache: "no-store" });
  if (!response.ok) throw await failure(response);
  return (await response.json()).data[0];
}

// The data of each event of a text/event-stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const pieces = waiting.split(/\r?\n\r?\n/);
    waiting = pieces.pop();
    for (const piece of pieces) {
      const data = piece.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
  }
}

// Asks and calls onDelta(delta) for each piece. Returns { reason, usage, first, seconds }: why the answer ended, the
// tokens counted by the server, seconds until the first piece and from there to the last. Throws ApiError, and
// AbortError once `signal` says so.
export async function answer(request, key, signal, onDelta) {
  const begun = performance.now();
  const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  const response = await fetch("/v1/chat/completions", { method: "POST", headers: headers(key), body, signal });
  if (!response.ok) throw await failure(response);
  const result = { reason: "", usage: null, first: 0, seconds: 0 };
  let isWhole = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      isWhole = true;
      break;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code || 500, chunk.error.message);
    if (chunk.usage) result.usage = chunk.usage;
    for (const choice of chunk.choices || []) {
      if (choice.finish_reason) result.reason = choice.finish_reason;
      if (!choice.delta || !(choice.delta.content || choice.delta.reasoning_content)) continue;
      const now = (performance.now() - begun) / 1000;
      if (!result.first) result.first = now;
      result.seconds = now - result.first;
      onDelta(choice.delta);
    }
  }
  if (!isWhole) throw new ApiError(0, "The connection ended before the answer did.");
  return result;
}
