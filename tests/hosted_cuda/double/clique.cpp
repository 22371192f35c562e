#include "tests/hosted_cuda/double/clique.h"

#include <cstdio>
#include <cstring>

#include "tests/hosted_cuda/double/order.h"

namespace annulus::hosted {
namespace {

std::chrono::milliseconds timeout() {
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  return machine.nccl_timeout;
}

std::string name(int rank) {
  return "rank " + std::to_string(rank);
}

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

std::string Clique::join(int rank, int device) {
  const Lock lock(mutex_);
  if (rank < 0 || rank >= ranks_) return name(rank) + " of " + std::to_string(ranks_);
  if (members_[static_cast<size_t>(rank)].joined) return name(rank) + " is there already";
  for (int other = 0; other < ranks_; ++other) {
    const Member& member = members_[static_cast<size_t>(other)];
    if (member.joined && member.device == device) {
      return name(rank) + " and " + name(other) + " have the same device, " + std::to_string(device);
    }
  }
  members_[static_cast<size_t>(rank)].joined = true;
  members_[static_cast<size_t>(rank)].device = device;
  changed_.notify_all();
  return {};
}

bool Clique::complete(std::chrono::steady_clock::time_point since) {
  const std::chrono::milliseconds limit = timeout();
  const Lock lock(mutex_);
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!members_[static_cast<size_t>(rank)].joined) missing.push_back(rank);
  }
  if (!missing.empty() && std::chrono::steady_clock::now() > since + limit) {
    fail(ncclSystemError, list(missing) + " did not come to initialise the communicator");
  }
  return missing.empty();
}

void Clique::fail(ncclResult_t error, const std::string& why) {
  if (error_ != ncclSuccess) return;
  error_ = error;
  why_ = why;
  std::fprintf(stderr, "hosted NCCL: %s\n", why.c_str());
  changed_.notify_all();
}

// What the other ranks are doing.
std::string Clique::others(int rank) const {
  std::string text;
  for (int other = 0; other < ranks_; ++other) {
    if (other == rank) continue;
    const Member& member = members_[static_cast<size_t>(other)];
    text += "; " + name(other) + " has begun " + std::to_string(member.groups) + " groups";
    if (!member.waits_for.empty()) text += " and waits for " + member.waits_for;
  }
  return text;
}

// False where something has failed instead.
template <class Condition>
bool Clique::wait(Lock& lock, int rank, const std::string& what, Condition&& condition) {
  Member& member = members_[static_cast<size_t>(rank)];
  member.waits_for = what;
  const auto done = [&] { return member.aborted || error_ != ncclSuccess || condition(); };
  if (!changed_.wait_for(lock, timeout(), done)) {
    fail(ncclSystemError, name(rank) + " waits in its group " + std::to_string(member.groups) + " for " + what +
                              ", which does not come" + others(rank));
  }
  member.waits_for.clear();
  return !member.aborted && error_ == ncclSuccess;
}

bool Clique::take(Lock& lock, int rank, const Transfer& receive) {
  auto& line = lines_[{receive.peer, rank}];
  const std::string what = std::to_string(receive.bytes) + " bytes from " + name(receive.peer);
  if (!wait(lock, rank, what, [&] { return !line.empty(); })) return false;
  const std::shared_ptr<Sent> sent = line.front();
  const int number = ++received_[{receive.peer, rank}];
  if (sent->data.size() != receive.bytes) {
    fail(ncclInvalidUsage, "message " + std::to_string(number) + " from " + name(receive.peer) + " to " + name(rank) +
                               " has " + std::to_string(sent->data.size()) + " bytes where " +
                               std::to_string(receive.bytes) + " are received");
    return false;
  }
  {
    const Shown shown;
    acquire(&sent->promise);
    writes(receive.data, receive.bytes);
  }
  std::memcpy(receive.data, sent->data.data(), receive.bytes);
  line.pop_front();
  sent->taken = true;
  changed_.notify_all();
  return true;
}

// What is sent, as it is now.
std::shared_ptr<Clique::Sent> Clique::read_out(const Transfer& send) {
  auto sent = std::make_shared<Sent>();
  const auto* begin = static_cast<const std::byte*>(send.data);
  sent->data.assign(begin, begin + send.bytes);
  const Shown shown;
  reads(send.data, send.bytes);
  release(&sent->promise);
  return sent;
}

void Clique::run(int rank, const Group& group) {
  std::vector<std::pair<int, std::shared_ptr<Sent>>> sends;
  for (const Transfer& transfer : group) {
    if (transfer.is_send) sends.emplace_back(transfer.peer, read_out(transfer));
  }
  Lock lock(mutex_);
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.aborted) return;
  ++member.groups;
  for (const auto& [peer, sent] : sends) lines_[{rank, peer}].push_back(sent);
  changed_.notify_all();
  bool ok = true;
  for (const Transfer& transfer : group) ok = ok && (transfer.is_send || take(lock, rank, transfer));
  for (const auto& [peer, sent] : sends) {
    const auto& message = sent;
    ok = ok && wait(lock, rank, name(peer) + " to receive " + std::to_string(message->data.size()) + " bytes",
                    [&] { return message->taken; });
  }
  if (!ok) changed_.wait_for(lock, timeout(), [&] { return member.aborted; });
}

void Clique::abort(int rank) {
  const Lock lock(mutex_);
  members_[static_cast<size_t>(rank)].aborted = true;
  fail(ncclRemoteError, name(rank) + " has aborted the communicator");
  changed_.notify_all();
}

ncclResult_t Clique::error(int rank) {
  const Lock lock(mutex_);
  return members_[static_cast<size_t>(rank)].aborted ? ncclSuccess : error_;
}

std::string Clique::why() {
  const Lock lock(mutex_);
  return why_;
}

}  // namespace annulus::hosted
