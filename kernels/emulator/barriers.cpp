#include "kernels/emulator/block.h"

#include "kernels/ceil_div.h"

namespace dex::emulator {
namespace {

void open_barrier(int number) {
  Barrier& barrier = block.barrier[number];
  Edges& edges = block.pool->edges->barrier[number];
  for (unsigned warps = barrier.warps; warps != 0; warps &= warps - 1) {
    const int w = __builtin_ctz(warps);
    make_ready(w, block.warp[w].lanes);
  }
  barrier.arrived = 0, barrier.warps = 0;
  edges.turn ^= 1;
  if (number == 0) block.count[edges.turn] = 0;  // who asked for it has come to this barrier since
}

void count_warp(const BarrierCall& call) {
  Barrier& barrier = block.barrier[call.number];
  const BarrierCall& other = barrier.call;
  if (barrier.arrived == 0)
    barrier.call = call;
  else if (other.threads != call.threads)
    fail(call.site, "a barrier of %lld threads, where others wait for %lld", call.threads,
         other.threads);
  else if (other.of_block && call.of_block && other.site.line != call.site.line)
    fail(call.site, "threads of one block are at two __syncthreads; the other is in line %lld",
         other.site.line);
  barrier.arrived += kLanes;
  if (call.waits) barrier.warps |= 1u << block.running / kLanes;
  if (barrier.arrived == call.threads) open_barrier(call.number);
}

// The lane comes to a barrier. Barriers count whole warps; true when this one is complete.
bool gather(Warp& warp, const BarrierCall& call, bool predicate) {
  const BarrierCall& other = warp.call;
  if (warp.gathered == 0)
    warp.call = call;
  else if (other.number != call.number || other.waits != call.waits ||
           other.site.line != call.site.line)
    fail(call.site, "lanes of one warp are at two barriers; the other is in line %lld",
         other.site.line);
  warp.gathered |= 1u << running_lane();
  warp.predicates += predicate;
  return warp.gathered == warp.lanes;
}

// Returns the barrier's turn.
int pass(const BarrierCall& call, bool predicate = false) {
  Warp& warp = running_warp();
  const int w = block.running / kLanes;
  Edges& gathered = block.pool->edges->gather[w];
  Edges& passed = block.pool->edges->barrier[call.number];
  gathered.edge[gathered.turn].post();
  if (gather(warp, call, predicate)) {
    gathered.edge[gathered.turn].take();
    passed.edge[passed.turn].post();
    gathered.turn ^= 1;
    warp.turn = passed.turn;
    if (call.of_block) block.count[passed.turn] += warp.predicates;
    warp.gathered = 0, warp.predicates = 0;
    if (!call.waits) make_ready(w, warp.lanes);
    count_warp(call);
  }
  wait(call.name, call.site);
  if (call.waits) passed.edge[warp.turn].take();
  return warp.turn;
}

}  // namespace

void named_barrier(int number, int threads, bool waits, Site site) {
  if (number < 0 || number >= kBarriers) fail(site, "barrier %lld: there are 16", number);
  if (threads <= 0 || threads % kLanes != 0)
    fail(site, "a barrier of %lld threads: not whole warps", threads);
  pass({number, threads, waits, false, waits ? "bar_sync" : "bar_arrive", site});
}

int block_barrier(bool predicate, Site site) {
  const int warps = ceil_div(block.size, kLanes);
  return block.count[pass({0, warps * kLanes, true, true, "__syncthreads", site}, predicate)];
}

namespace {

// All that have not exited are there.
void hold(Warp& warp, int w, int number) {
  const Meeting meeting = warp.meeting[number];
  warp.meeting[number] = warp.meeting[--warp.meetings];
  if (meeting.exchange != nullptr) meeting.exchange(meeting);
  make_ready(w, meeting.arrived);
}

int find_meeting(Warp& warp, const Meeting& wanted) {
  for (int i = 0; i < warp.meetings; ++i) {
    const Meeting& other = warp.meeting[i];
    if (other.mask != wanted.mask) continue;
    if (other.what != wanted.what || other.site.line != wanted.site.line)
      fail(wanted.site, "lanes of one mask are at two operations; the other is in line %lld",
           other.site.line);
    return i;
  }
  warp.meeting[warp.meetings] = wanted;
  return warp.meetings++;
}

}  // namespace

void meet(unsigned mask, const char* what, void* posted, void (*exchange)(const Meeting&),
          Site site, bool orders_memory) {
  Warp& warp = running_warp();
  const int w = block.running / kLanes;
  if ((mask >> running_lane() & 1) == 0)
    fail(site, "a warp operation whose mask leaves out the calling lane");
  Edges& edges = block.pool->edges->meeting[w * kLanes + __builtin_ctz(mask)];
  Edge& edge = edges.edge[edges.turn];
  if (orders_memory) edge.post();
  const int number = find_meeting(warp, {mask, 0, what, site, exchange});
  warp.meeting[number].arrived |= 1u << running_lane();
  running().posted = posted;
  if (((warp.meeting[number].arrived | warp.absent) & mask) == mask) {
    if (orders_memory) edges.turn ^= 1;
    hold(warp, w, number);
  }
  wait(what, site);
  if (orders_memory) edge.take();
}

void leave_meetings() {
  Warp& warp = running_warp();
  warp.absent |= 1u << running_lane();
  for (int i = warp.meetings - 1; i >= 0; --i)
    if (((warp.meeting[i].arrived | warp.absent) & warp.meeting[i].mask) == warp.meeting[i].mask)
      hold(warp, block.running / kLanes, i);
}

}  // namespace dex::emulator
