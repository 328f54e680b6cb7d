/* Restarts from the newest undamaged checkpoint of a folder and prints what it finds. */
#include <crossdock.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void check(crossdock_status status) {
    if (status == CROSSDOCK_OK) return;
    fprintf(stderr, "%s\n", crossdock_error_message());
    exit(1);
}

int main(int argc, char **argv) {
    crossdock_checkpoint *saved;
    crossdock_checkpoint_variable about;
    char series[CROSSDOCK_NAME_MAX + 1], note[256], why[4096], path[4096];
    uint64_t sequence;
    uint32_t skipped;
    int64_t step;
    double time, v[6], sum = 0;
    if (argc != 2) return 2;
    check(crossdock_ranked_name("field", -1, series, sizeof series));
    check(crossdock_checkpoint_restart(argv[1], NULL, &saved));
    check(crossdock_checkpoint_sequence(saved, series, &sequence));
    check(crossdock_checkpoint_integer(saved, series, "step", &step));
    check(crossdock_checkpoint_real(saved, NULL, "time", &time));
    check(crossdock_checkpoint_text(saved, series, "note", note, sizeof note));
    check(crossdock_checkpoint_skipped(saved, &skipped, why, sizeof why));
    check(crossdock_checkpoint_path(saved, path, sizeof path));
    check(crossdock_checkpoint_variable_info(saved, series, "v09", &about));
    if (about.bytes != sizeof(float) * 6 || about.rank != 2 || about.shape[1] != 3) return 3;
    check(crossdock_checkpoint_variable_info(saved, series, "v10", &about));
    check(crossdock_checkpoint_read(saved, series, "v10", v, sizeof v));
    for (int i = 0; i < 6; i++) sum += v[i];
    if (crossdock_checkpoint_read(saved, series, "v10", v, sizeof v - 1) != CROSSDOCK_WRONG_TYPE) return 4;
    if (crossdock_checkpoint_integer(saved, series, "note", &step) != CROSSDOCK_WRONG_TYPE) return 5;
    printf("%s %" PRIu64 " %" PRId64 " %.3f %s %" PRIu32 " %.9e\n", series, sequence, step, time, note, skipped, sum);
    check(crossdock_checkpoint_unref(saved));
    if (crossdock_checkpoint_sequence(saved, NULL, &sequence) != CROSSDOCK_INVALID) return 6;
    return crossdock_checkpoint_restart("/nowhere", NULL, &saved) == CROSSDOCK_NOT_FOUND ? 0 : 7;
}
