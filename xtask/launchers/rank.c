// A rank that holds one block: one MiB, and one more for each rank before it. `rank VARIABLE [fail]`: the variable of its
// launcher has its number; with `fail`, rank 1 aborts while the others wait for it.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    int rank = atoi(getenv(words[1]));
    size_t size = (size_t)(rank + 1) << 20;
    char *block = malloc(size);
    memset(block, 1, size);
    if (count > 2) {
        // So that all have started.
        sleep(rank == 1 ? 3 : 60);
        if (rank == 1)
            abort();
    }
    free(block);
    return 0;
}
