/* Checks the sizes and offsets of the header's structs. They may change only with a new version of the library. A test
 * in src/plain.rs checks the same numbers for the library's structs, so a change must be made in both files. */
#include <crossdock.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has changed its size")
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")

SIZE(crossdock_connect_options, 48);
AT(crossdock_connect_options, socket, 0);
AT(crossdock_connect_options, task, 8);
AT(crossdock_connect_options, workflow, 16);
AT(crossdock_connect_options, rank, 24);
AT(crossdock_connect_options, timeout_ms, 32);
AT(crossdock_connect_options, private_daemon, 40);
AT(crossdock_connect_options, reserved, 44);

SIZE(crossdock_type, 24);
AT(crossdock_type, name, 0);
AT(crossdock_type, size, 8);
AT(crossdock_type, align, 16);
AT(crossdock_type, reserved, 20);

SIZE(crossdock_region_statistics, 64);
AT(crossdock_region_statistics, capacity, 0);
AT(crossdock_region_statistics, reserved, 8);
AT(crossdock_region_statistics, used, 16);
AT(crossdock_region_statistics, blocks, 24);
AT(crossdock_region_statistics, objects, 32);
AT(crossdock_region_statistics, slots, 40);
AT(crossdock_region_statistics, largest_free, 48);
AT(crossdock_region_statistics, unused, 56);

SIZE(crossdock_heal_report, 24);
AT(crossdock_heal_report, slots, 0);
AT(crossdock_heal_report, operations, 8);
AT(crossdock_heal_report, objects, 16);

SIZE(crossdock_object, 40);
AT(crossdock_object, address, 0);
AT(crossdock_object, handle, 8);
AT(crossdock_object, size, 24);
AT(crossdock_object, created, 32);
AT(crossdock_object, reserved, 36);

SIZE(crossdock_object_info, 352);
AT(crossdock_object_info, name, 0);
AT(crossdock_object_info, type, 128);
AT(crossdock_object_info, handle, 320);
AT(crossdock_object_info, size, 336);
AT(crossdock_object_info, align, 344);
AT(crossdock_object_info, reserved, 348);

SIZE(crossdock_vector, 32);
AT(crossdock_vector, region, 0);
AT(crossdock_vector, data, 8);
AT(crossdock_vector, size, 16);
AT(crossdock_vector, capacity, 24);

SIZE(crossdock_ndarray, 128);
AT(crossdock_ndarray, region, 0);
AT(crossdock_ndarray, data, 8);
AT(crossdock_ndarray, capacity_bytes, 16);
AT(crossdock_ndarray, rank, 24);
AT(crossdock_ndarray, order, 28);
AT(crossdock_ndarray, shape, 32);
AT(crossdock_ndarray, reserved, 96);

SIZE(crossdock_port_options, 12);
AT(crossdock_port_options, pattern, 0);
AT(crossdock_port_options, capacity, 4);
AT(crossdock_port_options, persistent, 8);

SIZE(crossdock_message, 64);
AT(crossdock_message, handle, 0);
AT(crossdock_message, tag, 16);
AT(crossdock_message, position, 24);
AT(crossdock_message, inline_length, 32);
AT(crossdock_message, reserved, 36);
AT(crossdock_message, inline_bytes, 40);

SIZE(crossdock_port_statistics, 96);
AT(crossdock_port_statistics, messages, 0);
AT(crossdock_port_statistics, received, 8);
AT(crossdock_port_statistics, bytes_handed_over, 16);
AT(crossdock_port_statistics, bytes_copied, 24);
AT(crossdock_port_statistics, producer_wait_ns, 32);
AT(crossdock_port_statistics, consumer_wait_ns, 40);
AT(crossdock_port_statistics, sleeps, 48);
AT(crossdock_port_statistics, wakes, 56);
AT(crossdock_port_statistics, redelivered, 64);
AT(crossdock_port_statistics, voided, 72);
AT(crossdock_port_statistics, under_way, 80);
AT(crossdock_port_statistics, unused, 88);

SIZE(crossdock_handle, 16);
AT(crossdock_handle, segment, 0);
AT(crossdock_handle, offset, 8);

SIZE(crossdock_value, 80);
AT(crossdock_value, kind, 0);
AT(crossdock_value, number, 8);
AT(crossdock_value, text, 16);
SIZE(crossdock_attribute, 88);
AT(crossdock_attribute, value, 8);
SIZE(crossdock_variable, 168);
AT(crossdock_variable, type, 8);
AT(crossdock_variable, dimensions, 16);
AT(crossdock_variable, order, 20);
AT(crossdock_variable, shape, 24);
AT(crossdock_variable, max_shape, 88);
AT(crossdock_variable, constants, 152);
AT(crossdock_variable, constant_count, 160);
SIZE(crossdock_series_options, 32);
AT(crossdock_series_options, chunk, 8);
AT(crossdock_series_options, keep, 12);
AT(crossdock_series_options, max_observers, 16);
AT(crossdock_series_options, full, 20);
AT(crossdock_series_options, detect, 24);
SIZE(crossdock_publisher_statistics, 96);
AT(crossdock_publisher_statistics, slots_used, 24);
AT(crossdock_publisher_statistics, last_ns, 56);
AT(crossdock_publisher_statistics, method, 88);
SIZE(crossdock_variable_info, 408);
AT(crossdock_variable_info, type, 128);
AT(crossdock_variable_info, dimensions, 320);
AT(crossdock_variable_info, element_size, 328);
AT(crossdock_variable_info, max_shape, 336);
AT(crossdock_variable_info, constant_count, 400);
SIZE(crossdock_change, 24);
AT(crossdock_change, from, 8);
AT(crossdock_change, bytes, 16);

SIZE(crossdock_item_options, 8);
AT(crossdock_item_options, level, 0);
AT(crossdock_item_options, on_death, 4);

SIZE(crossdock_item_info, 440);
AT(crossdock_item_info, key, 0);
AT(crossdock_item_info, owner, 128);
AT(crossdock_item_info, creator, 256);
AT(crossdock_item_info, size, 384);
AT(crossdock_item_info, since_ms, 392);
AT(crossdock_item_info, transfers, 400);
AT(crossdock_item_info, copies, 408);
AT(crossdock_item_info, state, 416);
AT(crossdock_item_info, level, 420);
AT(crossdock_item_info, on_death, 424);
AT(crossdock_item_info, readers, 428);
AT(crossdock_item_info, waiting, 432);
AT(crossdock_item_info, mine, 436);

/* Each enum of the C interface has four bytes, because the library passes enums as 32-bit numbers. */
SIZE(crossdock_item_level, 4);
SIZE(crossdock_item_policy, 4);
SIZE(crossdock_item_state, 4);
SIZE(crossdock_status, 4);
SIZE(crossdock_mode, 4);
SIZE(crossdock_order, 4);
SIZE(crossdock_end, 4);
SIZE(crossdock_pattern, 4);
SIZE(crossdock_waiting, 4);
_Static_assert(CROSSDOCK_CREATE_ONLY == 0, "CROSSDOCK_CREATE_ONLY has changed");
_Static_assert(CROSSDOCK_OPEN_ONLY == 1, "CROSSDOCK_OPEN_ONLY has changed");
_Static_assert(CROSSDOCK_OPEN_OR_CREATE == 2, "CROSSDOCK_OPEN_OR_CREATE has changed");
_Static_assert(CROSSDOCK_RECREATE == 3, "CROSSDOCK_RECREATE has changed");
_Static_assert(CROSSDOCK_ORDER_C == 0, "CROSSDOCK_ORDER_C has changed");
_Static_assert(CROSSDOCK_ORDER_FORTRAN == 1, "CROSSDOCK_ORDER_FORTRAN has changed");
_Static_assert(CROSSDOCK_PRODUCER == 0, "CROSSDOCK_PRODUCER has changed");
_Static_assert(CROSSDOCK_CONSUMER == 1, "CROSSDOCK_CONSUMER has changed");
_Static_assert(CROSSDOCK_ONE_TO_ONE == 0, "CROSSDOCK_ONE_TO_ONE has changed");
_Static_assert(CROSSDOCK_FAN_OUT == 1, "CROSSDOCK_FAN_OUT has changed");
_Static_assert(CROSSDOCK_FAN_IN == 2, "CROSSDOCK_FAN_IN has changed");
_Static_assert(CROSSDOCK_WORK_QUEUE == 3, "CROSSDOCK_WORK_QUEUE has changed");
_Static_assert(CROSSDOCK_ANY_PATTERN == 4, "CROSSDOCK_ANY_PATTERN has changed");
_Static_assert(CROSSDOCK_WAIT_ADAPTIVE == 0, "CROSSDOCK_WAIT_ADAPTIVE has changed");
_Static_assert(CROSSDOCK_WAIT_SPIN == 1, "CROSSDOCK_WAIT_SPIN has changed");
_Static_assert(CROSSDOCK_WAIT_BLOCK == 2, "CROSSDOCK_WAIT_BLOCK has changed");

_Static_assert(CROSSDOCK_COOPERATIVE == 1, "CROSSDOCK_COOPERATIVE has changed");
_Static_assert(CROSSDOCK_VERIFIED == 2, "CROSSDOCK_VERIFIED has changed");
_Static_assert(CROSSDOCK_STRICT == 3, "CROSSDOCK_STRICT has changed");
_Static_assert(CROSSDOCK_KEEP == 1, "CROSSDOCK_KEEP has changed");
_Static_assert(CROSSDOCK_RETURN == 2, "CROSSDOCK_RETURN has changed");
_Static_assert(CROSSDOCK_DESTROY == 3, "CROSSDOCK_DESTROY has changed");
_Static_assert(CROSSDOCK_ITEM_HELD == 1, "CROSSDOCK_ITEM_HELD has changed");
_Static_assert(CROSSDOCK_ITEM_WAITING == 2, "CROSSDOCK_ITEM_WAITING has changed");
_Static_assert(CROSSDOCK_ITEM_SHARED == 3, "CROSSDOCK_ITEM_SHARED has changed");
_Static_assert(CROSSDOCK_ITEM_COPYING == 4, "CROSSDOCK_ITEM_COPYING has changed");

int main(void)
{
    return 0;
}
