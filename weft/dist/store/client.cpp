#include "weft/dist/store/client.h"

#include "weft/dist/store/sockets.h"

namespace weft::dist {
namespace {

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

StoreClient::StoreClient(StoreEndpoint endpoint, std::chrono::milliseconds timeout)
    : Store(timeout),
      endpoint_(std::move(endpoint)),
      socket_(connect_to_store(endpoint_.address, endpoint_.port, endpoint_.key,
                               StoreClock::now() + timeout)) {
  give_up_after(socket_.get(), endpoint_.answer_time);
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::make_intrusive<StoreClient>(endpoint_, timeout_);
}

MessageReader StoreClient::ask(const MessageWriter& request, std::chrono::milliseconds more) {
  const std::lock_guard lock(mutex_);
  const std::string where = endpoint_text(endpoint_.address, endpoint_.port);
  core::check<core::CommError>(socket_.is_open(), "dist.store: ", where,
                               ": the connection was lost before");
  try {
    const auto deadline = StoreClock::now() + endpoint_.answer_time + more;
    send_all(socket_.get(), request.framed(), deadline);
    return MessageReader(receive_message(socket_.get(), deadline));
  } catch (const core::CommError& error) {
    // A late answer would be taken for that to the next request.
    socket_.reset();
    core::fail<core::CommError>(error.what(), " (", where, ", where the ranks meet)");
  }
}

void StoreClient::set(const std::string& key, const std::vector<uint8_t>& value) {
  ask(MessageWriter().op(StoreOp::kSet).text(key).text(text_of(value)));
}

std::vector<uint8_t> StoreClient::compareSet(const std::string& key,
                                             const std::vector<uint8_t>& current_value,
                                             const std::vector<uint8_t>& new_value) {
  MessageWriter request;
  request.op(StoreOp::kCompareSet).text(key).text(text_of(current_value)).text(text_of(new_value));
  return bytes_of(ask(request).text());
}

std::vector<uint8_t> StoreClient::get(const std::string& key) {
  wait({key}, timeout_);
  MessageReader reply = ask(MessageWriter().op(StoreOp::kGet).text(key));
  const bool is_there = reply.number() != 0;
  core::check<core::CommError>(is_there, "dist.store: key ", key, ": expected a value, got none");
  return bytes_of(reply.text());
}

int64_t StoreClient::add(const std::string& key, int64_t value) {
  return ask(MessageWriter().op(StoreOp::kAdd).text(key).number(value)).number();
}

bool StoreClient::deleteKey(const std::string& key) {
  return ask(MessageWriter().op(StoreOp::kDelete).text(key)).number() != 0;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  MessageWriter request;
  request.op(StoreOp::kCheck);
  for (const std::string& key : keys) request.text(key);
  return ask(request).number() != 0;
}

int64_t StoreClient::getNumKeys() { return ask(MessageWriter().op(StoreOp::kCount)).number(); }

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void StoreClient::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  MessageWriter request;
  request.op(StoreOp::kWait).number(timeout.count());
  for (const std::string& key : keys) request.text(key);
  const bool came = ask(request, timeout).number() != 0;
  if (!came) core::fail<StoreTimeout>("dist.store: nobody set ", keys.front(), " in time");
}

}  // namespace weft::dist
