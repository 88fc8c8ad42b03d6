#include "kernels/emulator/emulator.h"
#include "kernels/emulator/sanitizers.h"

namespace dex::emulator {

bool address_sanitizer() { return __asan_poison_memory_region != nullptr; }
bool thread_sanitizer() { return __tsan_create_fiber != nullptr; }

int schedules() { return address_sanitizer() || thread_sanitizer() ? 2 : 10; }

std::string use_schedule(int number) {
  constexpr Schedule kSanitized[] = {{Order::up, 0, false}, {Order::random, 1, true}};
  constexpr Schedule kOrders[] = {
      {Order::up}, {Order::down}, {Order::random, 1}, {Order::random, 2}, {Order::random, 3}};
  Schedule schedule = schedules() == 2 ? kSanitized[number] : kOrders[number / 2];
  if (schedules() > 2) schedule.late_copies = number % 2 == 1;
  use(schedule);
  const char* order = schedule.order == Order::up     ? "up"
                      : schedule.order == Order::down ? "down"
                                                      : "random ";
  return order + (schedule.order == Order::random ? std::to_string(schedule.seed) : "") +
         (schedule.late_copies ? ", late copies" : ", early copies");
}

}  // namespace dex::emulator
