/* hub — see hub.h. Read hub_fetch first, at the end. Source: the hub's documentation of its API,
 * https://huggingface.co/docs/hub/api. */
#include "remote/hub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "remote/fetch.h"
#include "remote/hub_name.h"
#include "remote/parallel.h"
#include "remote/remote_path.h"

#define ENDPOINT "https://huggingface.co"
#define ANSWER_BYTES_MAX (64 << 20) /* largest answer about a repository */
#define INDEX_BYTES_MAX (32 << 20)  /* largest model.safetensors.index.json */
#define TOKEN_BYTES_MAX 512
#define THREADS 4     /* downloads at the same time */
#define SHOWN_FILES 5 /* files that a message lists */
#define WEIGHTS "model.safetensors"
#define WEIGHTS_INDEX WEIGHTS ".index.json"

struct hub_file {
    char *name;    /* in the repository */
    int64_t bytes; /* -1: unknown */
    bool is_wanted;
};

struct hub {
    const struct remote_config *config;
    enum remote_kind kind;
    struct hub_name name;
    char endpoint[256];
    char token[TOKEN_BYTES_MAX + 1], token_from[FILE_PATH_MAX]; /* "": none; its variable or file */
    bool is_offline;
    char dir[FILE_PATH_MAX]; /* the repository in the cache */
    char partial_dir[FILE_PATH_MAX];
    char commit[REMOTE_REVISION_MAX];
    char commit_dir[FILE_PATH_MAX];
    struct hub_file *file; /* sorted by name */
    int64_t files_n;
    /* Wanted files: complete ones; all of known size; bytes that each thread has of its file. */
    _Atomic int64_t done_bytes;
    int64_t total_bytes;
    _Atomic int64_t moved_bytes[PARALLEL_MAX];
    int64_t *missing;          /* numbers of the wanted files that are not here */
    struct parallel *parallel; /* NULL: this thread fetches */
    bool is_stopped;
};

/* One download, by one thread. */
struct download {
    struct hub *hub;
    int thread_i;
    const char *file; /* NULL: the hub's answer */
    bool is_limited;
};

/* ---- messages ---- */

/* Returns the page of the repository, on which users request access. */
static const char *page_of(const struct hub *hub, char out[HUB_REPO_MAX + 64])
{
    text_format(out, HUB_REPO_MAX + 64, ENDPOINT "/%s%s", hub->name.is_dataset ? "datasets/" : "",
                hub->name.repo);
    return out;
}

/* Returns "hf://org/name", or with its prefix for a data set. */
static const char *repo_of(const struct hub *hub, char out[HUB_REPO_MAX + 64])
{
    text_format(out, HUB_REPO_MAX + 64, "hf://%s%s", hub->name.is_dataset ? "datasets/" : "",
                hub->name.repo);
    return out;
}

static enum status refuse_access(const struct hub *hub, long code)
{
    char page[HUB_REPO_MAX + 64], repo[HUB_REPO_MAX + 64];
    const char *setting = hub->config->setting;
    page_of(hub, page);
    repo_of(hub, repo);
    if (hub->token[0] == '\0')
        return FAIL(ST_BAD_SETTING,
                    "%s=%s: %s answered HTTP %ld to a request without a token: the repository is "
                    "gated, private or not there; check the name, ask for access on %s, and set "
                    "HF_TOKEN to a token of your account",
                    setting, repo, hub->endpoint, code, page);
    if (code == 401)
        return FAIL(
            ST_BAD_SETTING,
            "%s=%s: %s refused the token of %s (HTTP 401); make a token that may read on " ENDPOINT
            "/settings/tokens, set HF_TOKEN to it, and check your access on %s",
            setting, repo, hub->endpoint, hub->token_from, page);
    return FAIL(ST_BAD_SETTING,
                "%s=%s: the account or the token of %s may not read it (HTTP 403); ask for access "
                "on %s, or set HF_TOKEN to another token",
                setting, repo, hub->token_from, page);
}

/* refuse_code — writes the sentence for an HTTP error whose cause the hub reports. */
static enum status refuse_code(void *arg, long code, const char *error_code)
{
    struct download *download = arg;
    const struct hub *hub = download->hub;
    char repo[HUB_REPO_MAX + 64];
    const char *setting = hub->config->setting;
    repo_of(hub, repo);
    download->is_limited = code == 429;
    if (code == 401 || code == 403)
        return refuse_access(hub, code);
    if (code != 404)
        return ST_OK;
    if (download->file != NULL)
        return FAIL(ST_NO_INPUT, "%s=%s has no file %s at commit %s", setting, repo, download->file,
                    hub->commit);
    if (strcmp(error_code, "RevisionNotFound") == 0)
        return FAIL(ST_NO_INPUT, "%s=%s has no branch, tag or commit \"%s\"; check the revision",
                    setting, repo, hub->name.revision);
    return FAIL(ST_NO_INPUT,
                "%s=%s: %s has no %s of that name, or it has no revision \"%s\"; check "
                "hf://%sorg/name@revision; a private one needs HF_TOKEN",
                setting, repo, hub->endpoint, hub->name.is_dataset ? "data set" : "model",
                hub->name.revision, hub->name.is_dataset ? "datasets/" : "");
}

/* ---- the environment ---- */

/* Returns a variable of the environment; "": not set. */
static const char *get_variable(const char *name)
{
    extern char **environ;
    const char *value = text_variable(environ, name);
    return value != NULL ? value : "";
}

/* use_token — sets the token without the white space around it. from: its variable or file. */
static enum status use_token(struct hub *hub, const char *text, const char *from)
{
    const char *at = text + strspn(text, " \t\r\n");
    size_t n = strlen(at);
    while (n > 0 && strchr(" \t\r\n", at[n - 1]) != NULL)
        n--;
    bool is_good = n <= TOKEN_BYTES_MAX;
    for (size_t i = 0; is_good && i < n; i++)
        is_good = at[i] > ' ' && at[i] <= '~';
    if (!is_good)
        return FAIL(
            ST_BAD_SETTING,
            "%s holds no token: it has blanks, controls or over %d bytes; set HF_TOKEN to a "
            "token of " ENDPOINT "/settings/tokens",
            from, TOKEN_BYTES_MAX);
    memcpy(hub->token, at, n);
    hub->token[n] = '\0';
    text_copy(hub->token_from, sizeof hub->token_from, from);
    return ST_OK;
}

/* find_token_file — finds the file that `hf auth login` writes. Returns false: none is there. */
static bool find_token_file(char out[FILE_PATH_MAX])
{
    const struct {
        const char *folder, *file;
    } places[] = {{get_variable("HF_HOME"), "token"},
                  {get_variable("XDG_CACHE_HOME"), "huggingface/token"},
                  {get_variable("HOME"), ".cache/huggingface/token"}};
    /* The first variable that is set decides. */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].folder[0] != '\0')
            return text_format(out, FILE_PATH_MAX, "%s/%s", places[i].folder, places[i].file) &&
                   file_exists(out);
    return false;
}

static enum status read_token(struct hub *hub)
{
    char path[FILE_PATH_MAX], *text;
    size_t n;
    if (get_variable("HF_TOKEN")[0] != '\0')
        return use_token(hub, get_variable("HF_TOKEN"), "HF_TOKEN");
    const bool is_named = get_variable("HF_TOKEN_PATH")[0] != '\0';
    if (is_named)
        text_copy(path, sizeof path, get_variable("HF_TOKEN_PATH"));
    else if (!find_token_file(path))
        return ST_OK;
    enum status st = file_read(path, 2 * TOKEN_BYTES_MAX, &text, &n);
    if (st != ST_OK && is_named)
        return FAIL(ST_BAD_SETTING, "HF_TOKEN_PATH: %s", status_message());
    if (st != ST_OK) {
        LOG_WARN("no token is used: %s", status_message());
        status_clear();
        return ST_OK;
    }
    st = use_token(hub, text, path);
    explicit_bzero(text, n);
    free(text);
    return st;
}

static enum status read_environment(struct hub *hub)
{
    const char *endpoint = get_variable("HF_ENDPOINT"), *offline = get_variable("HF_HUB_OFFLINE");
    endpoint = endpoint[0] != '\0' ? endpoint : ENDPOINT;
    if ((!text_starts(endpoint, "http://") && !text_starts(endpoint, "https://")) ||
        strpbrk(endpoint, "@?# ") != NULL ||
        !text_copy(hub->endpoint, sizeof hub->endpoint, endpoint))
        return FAIL(ST_BAD_SETTING, "HF_ENDPOINT is not an address such as " ENDPOINT
                                    ", without a user, a question mark or a fragment");
    for (size_t n = strlen(hub->endpoint); n > 0 && hub->endpoint[n - 1] == '/'; n--)
        hub->endpoint[n - 1] = '\0';
    if (offline[0] != '\0' && !text_parse_bool(offline, &hub->is_offline))
        return FAIL(ST_BAD_SETTING, "HF_HUB_OFFLINE=%.40s is neither 1 nor 0", offline);
    return hub->is_offline ? ST_OK : read_token(hub);
}

/* ---- one download ---- */

/* report_files — reports the progress of all files of the name. */
static enum status report_files(void *arg)
{
    struct hub *hub = arg;
    char repo[HUB_REPO_MAX + 64];
    int64_t done = hub->done_bytes;
    for (int i = 0; i < PARALLEL_MAX; i++)
        done += hub->moved_bytes[i];
    if (hub->config->progress == NULL ||
        hub->config->progress(hub->config->progress_arg, done,
                              hub->total_bytes > done ? hub->total_bytes : done))
        return ST_OK;
    hub->is_stopped = true;
    return FAIL(ST_RETRY,
                "stopped while downloading %s, after %lld bytes; the next start resumes there",
                repo_of(hub, repo), (long long)done);
}

/* on_progress — keeps the bytes of a thread's file; the thread that started the others reports. */
static bool on_progress(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    const struct download *download = arg;
    struct hub *hub = download->hub;
    (void)bytes_total;
    if (download->file != NULL)
        hub->moved_bytes[download->thread_i] = bytes_done;
    return hub->parallel != NULL ? !hub->parallel->is_stopped : report_files(hub) == ST_OK;
}

/* download_file — fetches a file of the repository, or the hub's answer about it. */
static enum status download_file(struct download *download, const char *url, const char *path)
{
    char unused[FILE_PATH_MAX], repo[HUB_REPO_MAX + 64];
    const struct hub *hub = download->hub;
    const bool is_answer = download->file == NULL;
    const struct fetch_hub file = {.path = path,
                                   .partial_dir = hub->partial_dir,
                                   .token = hub->token,
                                   .is_fresh = is_answer,
                                   .refuse = refuse_code,
                                   .refuse_arg = download};
    const struct fetch_config config = {.setting = hub->config->setting,
                                        .cache_dir = hub->config->cache_dir,
                                        .allows_local = hub->config->allows_local,
                                        .progress = on_progress,
                                        .progress_arg = download,
                                        .bytes_max = is_answer ? ANSWER_BYTES_MAX : 0,
                                        .retry_ms = hub->config->retry_ms,
                                        .hub = &file};
    const enum status st = fetch_file(&config, url, unused);
    if (st == ST_RETRY && download->is_limited)
        return FAIL(
            ST_RETRY, "%s; %s limits the requests of an address%s", status_message(), hub->endpoint,
            hub->token[0] != '\0' ? " and an account"
                                  : "; set HF_TOKEN: requests with a token have higher limits");
    if ((st == ST_RETRY && !hub->is_stopped) || st == ST_BAD_DATA)
        return FAIL(st, "%s=%s: %s", hub->config->setting, repo_of(hub, repo), status_message());
    return st;
}

/* Appends a path, with the bytes escaped that are special in an address; '/' stays if keeps_slash.
 */
static void add_escaped(struct text *out, const char *path, bool keeps_slash)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~";
    for (const char *c = path; *c != '\0'; c++)
        if (strchr(plain, *c) != NULL || (*c == '/' && keeps_slash))
            text_add_bytes(out, c, 1);
        else
            text_add(out, "%%%02X", (unsigned char)*c);
}

/* ---- the hub's answer ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hub_file *)a)->name, ((const struct hub_file *)b)->name);
}

/* check_folders — refuses a list in which the name of a file is also the name of a folder. */
static enum status check_folders(const struct hub *hub)
{
    char shown[2][200];
    const char *file, *below;
    const char **names = memory_new((size_t)hub->files_n + 1, sizeof *names);
    for (int64_t i = 0; i < hub->files_n; i++)
        names[i] = hub->file[i].name;
    const bool is_bad = remote_path_find_clash(names, hub->files_n, &file, &below);
    free(names);
    return is_bad ? FAIL(ST_BAD_DATA,
                         "it lists the files \"%s\" and \"%s\", but no folder can hold both",
                         text_printable(shown[0], sizeof shown[0], file),
                         text_printable(shown[1], sizeof shown[1], below))
                  : ST_OK;
}

/* read_files — reads the list of files. Names that could leave the folder are refused. */
static enum status read_files(struct hub *hub, const cJSON *root)
{
    const cJSON *siblings;
    TRY(json_get_array(root, "siblings", &siblings));
    hub->file = memory_new((size_t)cJSON_GetArraySize(siblings) + 1, sizeof *hub->file);
    for (const cJSON *item = siblings->child; item != NULL; item = item->next) {
        const char *name;
        struct hub_file *file = hub->file + hub->files_n;
        char shown[128];
        TRY(json_get_string(item, "rfilename", &name));
        if (!remote_path_is_safe(name) || strlen(name) >= HUB_PATH_MAX)
            return FAIL(ST_BAD_DATA,
                        "it lists a file whose name could leave its folder, or is too long: "
                        "\"%.100s\"",
                        text_printable(shown, sizeof shown, name));
        file->bytes = -1;
        if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(item, "size")))
            TRY(json_get_i64(item, "size", 0, FETCH_BYTES_MAX, &file->bytes));
        file->name = memory_text(name);
        hub->files_n++;
    }
    qsort(hub->file, (size_t)hub->files_n, sizeof *hub->file, by_name);
    return check_folders(hub);
}

/* keep_for_commit — keeps the answer for a branch as the answer for its commit, too, which a pinned
 * name asks for. */
static enum status keep_for_commit(const struct hub *hub, const char *bytes, size_t n)
{
    char path[FILE_PATH_MAX];
    if (!text_format(path, sizeof path, "%s/refs/%s.json", hub->dir, hub->commit))
        return FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR",
                    hub->dir);
    return file_exists(path) ? ST_OK : file_replace(path, bytes, n);
}

/* read_root — reads commit and files from the parsed answer. */
static enum status read_root(struct hub *hub, const cJSON *root)
{
    const char *commit;
    TRY(json_get_string(root, "sha", &commit));
    if (!hub_name_is_commit(commit) ||
        (hub_name_is_commit(hub->name.revision) && strcmp(commit, hub->name.revision) != 0))
        return FAIL(ST_BAD_DATA, "it has the commit \"%.80s\", which is none, or another one",
                    commit);
    text_copy(hub->commit, sizeof hub->commit, commit);
    TRY(read_files(hub, root));
    return file_join(hub->commit_dir, sizeof hub->commit_dir, hub->dir, hub->commit);
}

/* parse_answer — reads commit and files from the hub's answer. */
static enum status parse_answer(struct hub *hub, const char *bytes, size_t n)
{
    char repo[HUB_REPO_MAX + 64];
    cJSON *root = NULL;
    enum status st = json_parse(bytes, n, "the answer", &root);
    if (st == ST_OK)
        st = read_root(hub, root);
    cJSON_Delete(root);
    if (st == ST_BAD_DATA)
        return FAIL(ST_BAD_DATA,
                    "%s=%s@%s: the answer of %s is not the list of a repository's files: %s; check "
                    "HF_ENDPOINT",
                    hub->config->setting, repo_of(hub, repo), hub->name.revision, hub->endpoint,
                    status_message());
    return st;
}

static enum status read_answer(struct hub *hub, const char *path)
{
    char *bytes;
    size_t n;
    TRY(file_read(path, ANSWER_BYTES_MAX, &bytes, &n));
    enum status st = parse_answer(hub, bytes, n);
    if (st == ST_OK)
        st = keep_for_commit(hub, bytes, n);
    free(bytes);
    return st;
}

/* request_answer — requests commit and files of the revision; sizes too, except for data sets,
 * whose answers would become too long. */
static enum status request_answer(struct hub *hub, const char *path)
{
    struct text url = {.limit = FILE_PATH_MAX};
    text_add(&url, "%s/api/%s/%s/revision/", hub->endpoint,
             hub->name.is_dataset ? "datasets" : "models", hub->name.repo);
    add_escaped(&url, hub->name.revision, false);
    text_add(&url, "%s", hub->name.is_dataset ? "" : "?blobs=true");
    const enum status st = download_file(&(struct download){.hub = hub}, url.data, path);
    text_free(&url);
    return st;
}

/* resolve_revision — finds the commit and its files. A commit never changes: its record in the
 * cache suffices. Else the hub resolves the revision, or the cache if the hub does not answer or
 * HF_HUB_OFFLINE is set. */
static enum status resolve_revision(struct hub *hub)
{
    char refs[FILE_PATH_MAX], path[FILE_PATH_MAX], repo[HUB_REPO_MAX + 64];
    struct text file = {0};
    repo_of(hub, repo);
    add_escaped(&file, hub->name.revision, false);
    text_add(&file, ".json");
    enum status st = file_join(refs, sizeof refs, hub->dir, "refs");
    if (st == ST_OK)
        st = file_join(path, sizeof path, refs, file.data);
    text_free(&file);
    TRY(st);
    const bool is_kept = file_exists(path);
    if (hub->is_offline && !is_kept)
        return FAIL(ST_NO_INPUT,
                    "%s=%s: HF_HUB_OFFLINE=1, and CACHE_DIR=%s has no record of revision \"%s\"; "
                    "start once without HF_HUB_OFFLINE",
                    hub->config->setting, repo, hub->config->cache_dir, hub->name.revision);
    if (!hub->is_offline && !(is_kept && hub_name_is_commit(hub->name.revision))) {
        TRY(file_make_dirs(refs));
        st = request_answer(hub, path);
        if (st == ST_RETRY && is_kept && !hub->is_stopped) {
            LOG_WARN("%s; using the commit that CACHE_DIR recorded for \"%s\"", status_message(),
                     hub->name.revision);
            status_clear();
            st = ST_OK;
        }
        TRY(st);
    }
    st = read_answer(hub, path);
    if (st == ST_BAD_DATA)
        unlink(path); /* the next start requests it again */
    TRY(st);
    if (!hub_name_is_commit(hub->name.revision))
        LOG_INFO("%s: \"%s\" is commit %s", repo, hub->name.revision, hub->commit);
    return ST_OK;
}

/* ---- the files of a setting ---- */

static struct hub_file *find_file(const struct hub *hub, const char *name)
{
    const struct hub_file key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, hub->file, (size_t)hub->files_n, sizeof *hub->file, by_name);
}

/* list_some — lists the first names, for a message. */
static const char *list_some(const struct hub *hub, char *out, size_t cap)
{
    struct text names = {.limit = cap - 1};
    int64_t n = 0;
    for (int64_t i = 0; i < hub->files_n && n < SHOWN_FILES; i++)
        if (!remote_path_is_hidden(hub->file[i].name))
            text_add(&names, "%s%.100s", n++ > 0 ? ", " : "", hub->file[i].name);
    if (hub->files_n > n)
        text_add(&names, " …");
    text_printable(out, cap, names.len > 0 ? names.data : "none");
    text_free(&names);
    return out;
}

static enum status no_such_file(const struct hub *hub)
{
    char repo[HUB_REPO_MAX + 64], some[640];
    return FAIL(
        ST_NO_INPUT,
        "%s=%s/%.200s: commit %.12s has no such file or folder, and no match; its files: %s",
        hub->config->setting, repo_of(hub, repo), hub->name.path, hub->commit,
        list_some(hub, some, sizeof some));
}

/* choose_twin — wants the other file of Megatron's pair, too. */
static void choose_twin(struct hub *hub, const char *name)
{
    char other[HUB_PATH_MAX];
    const size_t n = strlen(name);
    if (!text_ends(name, ".idx") && !text_ends(name, ".bin"))
        return;
    text_format(other, sizeof other, "%.*s%s", (int)n - 4, name,
                text_ends(name, ".idx") ? ".bin" : ".idx");
    struct hub_file *twin = find_file(hub, other);
    if (twin != NULL)
        twin->is_wanted = true;
}

/* choose_data — wants a file, or the files of a folder or a glob. */
static enum status choose_data(struct hub *hub, char path_out[FILE_PATH_MAX])
{
    const char *path = hub->name.path;
    const size_t n = strlen(path);
    struct hub_file *exact = find_file(hub, path);
    int64_t wanted_n = 0;
    if (exact != NULL) {
        exact->is_wanted = true;
        choose_twin(hub, path);
        return file_join(path_out, FILE_PATH_MAX, hub->commit_dir, path);
    }
    for (int64_t i = 0; i < hub->files_n; i++) {
        const char *name = hub->file[i].name;
        const bool is_below = strncmp(name, path, n) == 0 && name[n] == '/';
        hub->file[i].is_wanted = is_below && !remote_path_is_hidden(name + n + 1);
        wanted_n += hub->file[i].is_wanted;
    }
    if (wanted_n > 0)
        return file_join(path_out, FILE_PATH_MAX, hub->commit_dir, path);
    if (!remote_path_is_glob(path))
        return no_such_file(hub);
    for (int64_t i = 0; i < hub->files_n; i++) {
        hub->file[i].is_wanted = remote_path_matches(path, hub->file[i].name) &&
                                 !remote_path_is_hidden(hub->file[i].name);
        wanted_n += hub->file[i].is_wanted;
    }
    if (wanted_n == 0)
        return no_such_file(hub);
    return remote_path_local_glob(hub->commit_dir, path, path_out);
}

/* want_file — wants a file of the folder, if it is there. folder: "", or with '/' at its end. */
static bool want_file(struct hub *hub, const char *folder, const char *name)
{
    char path[HUB_PATH_MAX];
    struct hub_file *file =
        text_format(path, sizeof path, "%s%s", folder, name) ? find_file(hub, path) : NULL;
    if (file != NULL)
        file->is_wanted = true;
    return file != NULL;
}

static enum status fetch_one(struct hub *hub, const struct hub_file *file, int thread_i);

/* want_indexed — fetches the index of the weights, and wants the files that it names. */
static enum status want_indexed(struct hub *hub, const char *folder)
{
    char name[HUB_PATH_MAX], path[FILE_PATH_MAX], repo[HUB_REPO_MAX + 64], *bytes;
    size_t n;
    const cJSON *map;
    cJSON *root = NULL;
    text_format(name, sizeof name, "%s" WEIGHTS_INDEX, folder);
    TRY(fetch_one(hub, find_file(hub, name), 0));
    TRY(file_join(path, sizeof path, hub->commit_dir, name));
    TRY(file_read(path, INDEX_BYTES_MAX, &bytes, &n));
    enum status st = json_parse(bytes, n, "the file", &root);
    free(bytes);
    if (st == ST_OK)
        st = json_get_object(root, "weight_map", &map);
    for (const cJSON *item = st == ST_OK ? map->child : NULL; item != NULL; item = item->next)
        if (st == ST_OK && (!cJSON_IsString(item) || !want_file(hub, folder, item->valuestring)))
            st = FAIL(ST_BAD_DATA, "it names a file that the repository does not have");
    cJSON_Delete(root);
    if (st == ST_BAD_DATA)
        return FAIL(st, "%s=%s@%s: %s: %s", hub->config->setting, repo_of(hub, repo), hub->commit,
                    name, status_message());
    return st;
}

/* refuse_weights — fails for a repository without safetensors weights. */
static enum status refuse_weights(const struct hub *hub, const char *folder)
{
    char repo[HUB_REPO_MAX + 64];
    const char *setting = hub->config->setting, *gguf = NULL, *pickle = NULL;
    char adapter[HUB_PATH_MAX];
    repo_of(hub, repo);
    text_format(adapter, sizeof adapter, "%sadapter_config.json", folder);
    for (int64_t i = 0; i < hub->files_n; i++) {
        const char *name = hub->file[i].name;
        if (gguf == NULL && text_ends(name, ".gguf"))
            gguf = name;
        if (pickle == NULL && (text_ends(name, ".bin") || text_ends(name, ".pth")))
            pickle = name;
    }
    if (find_file(hub, adapter) != NULL)
        return FAIL(ST_NO_INPUT, "%s=%s is an adapter; set ADAPTER=%s, and MODEL to its base model",
                    setting, repo, repo);
    if (gguf != NULL)
        return FAIL(ST_NO_INPUT,
                    "%s=%s has no " WEIGHTS ", but GGUF files; name one, such as %s=%s/%.200s",
                    setting, repo, setting, repo, gguf);
    return FAIL(ST_NO_INPUT,
                "%s=%s has no " WEIGHTS "%s%.100s%s; use a repository with safetensors weights",
                setting, repo, pickle != NULL ? " (" : "", pickle != NULL ? pickle : "",
                pickle != NULL ? " is a pickle, which is not read)" : "");
}

const char *const hub_tokenizer_files[HUB_TOKENIZER_FILES] = {"tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "vocab.json",
                                                              "merges.txt",
                                                              "tokenizer.model",
                                                              "chat_template.jinja",
                                                              "chat_template.json"};

/* choose_folder — wants the files of a model, a tokenizer or an adapter. */
static enum status choose_folder(struct hub *hub, const char *folder)
{
    char repo[HUB_REPO_MAX + 64], some[640];
    bool any = false;
    for (int i = 0; i < HUB_TOKENIZER_FILES; i++)
        if (hub->kind != REMOTE_KIND_ADAPTER)
            any |= want_file(hub, folder, hub_tokenizer_files[i]);
    if (hub->kind == REMOTE_KIND_TOKENIZER && !any)
        return FAIL(ST_NO_INPUT, "%s=%s has no tokenizer.json or other tokenizer; its files: %s",
                    hub->config->setting, repo_of(hub, repo), list_some(hub, some, sizeof some));
    if (hub->kind == REMOTE_KIND_TOKENIZER)
        return ST_OK;
    if (hub->kind == REMOTE_KIND_ADAPTER) {
        if (want_file(hub, folder, "adapter_config.json") &&
            want_file(hub, folder, "adapter_model.safetensors"))
            return ST_OK;
        return FAIL(ST_NO_INPUT,
                    "%s=%s has no adapter_config.json and adapter_model.safetensors; its files: %s",
                    hub->config->setting, repo_of(hub, repo), list_some(hub, some, sizeof some));
    }
    want_file(hub, folder, "generation_config.json");
    const bool has_config = want_file(hub, folder, "config.json"),
               reads_weights = hub->kind != REMOTE_KIND_CONFIG;
    if (reads_weights && want_file(hub, folder, WEIGHTS_INDEX))
        TRY(want_indexed(hub, folder));
    else if (reads_weights && !want_file(hub, folder, WEIGHTS))
        return refuse_weights(hub, folder);
    if (!has_config)
        return FAIL(ST_NO_INPUT, "%s=%s has no config.json; its files: %s", hub->config->setting,
                    repo_of(hub, repo), list_some(hub, some, sizeof some));
    return ST_OK;
}

/* choose_files — wants the files that the setting needs. path_out: their file, folder or glob. */
static enum status choose_files(struct hub *hub, char path_out[FILE_PATH_MAX])
{
    char folder[HUB_PATH_MAX + 1] = "";
    const char *path = hub->name.path;
    struct hub_file *exact = find_file(hub, path);
    if (hub->kind == REMOTE_KIND_DATA)
        return choose_data(hub, path_out);
    if (path[0] == '\0') {
        text_copy(path_out, FILE_PATH_MAX, hub->commit_dir);
        return choose_folder(hub, folder);
    }
    TRY(file_join(path_out, FILE_PATH_MAX, hub->commit_dir, path));
    if (exact != NULL) {
        exact->is_wanted = true;
        return ST_OK;
    }
    text_format(folder, sizeof folder, "%s/", path);
    for (int64_t i = 0; i < hub->files_n; i++)
        if (text_starts(hub->file[i].name, folder))
            return choose_folder(hub, folder);
    return no_such_file(hub);
}

/* is_whole — returns true if a file is in the cache, with the size that the hub lists. */
static bool is_whole(const char *path, const struct hub_file *file)
{
    const int64_t here = file_bytes(path);
    return here >= 0 && (file->bytes < 0 || here == file->bytes);
}

/* ---- their download ---- */

static enum status fetch_one(struct hub *hub, const struct hub_file *file, int thread_i)
{
    char path[FILE_PATH_MAX], repo[HUB_REPO_MAX + 64];
    struct download download = {.hub = hub, .thread_i = thread_i, .file = file->name};
    struct text url = {.limit = FILE_PATH_MAX};
    TRY(file_join(path, sizeof path, hub->commit_dir, file->name));
    if (file_exists(path)) {
        if (is_whole(path, file))
            return ST_OK;
        unlink(path);
    }
    if (hub->is_offline)
        return FAIL(ST_NO_INPUT,
                    "%s=%s: HF_HUB_OFFLINE=1, and CACHE_DIR=%s does not have %s of commit %s; "
                    "start once without HF_HUB_OFFLINE",
                    hub->config->setting, repo_of(hub, repo), hub->config->cache_dir, file->name,
                    hub->commit);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    TRY(file_make_dirs(path));
    *slash = '/';
    text_add(&url, "%s/%s%s/resolve/%s/", hub->endpoint, hub->name.is_dataset ? "datasets/" : "",
             hub->name.repo, hub->commit);
    add_escaped(&url, file->name, true);
    const enum status st = url.overflow
                               ? FAIL(ST_BAD_DATA, "the address of %.100s is too long", file->name)
                               : download_file(&download, url.data, path);
    text_free(&url);
    hub->moved_bytes[thread_i] = 0;
    TRY(st);
    if (!is_whole(path, file)) {
        const long long here = (long long)file_bytes(path);
        unlink(path);
        return FAIL(ST_BAD_DATA,
                    "%s=%s: %s has %lld bytes, but the hub lists %lld; start again later, or check "
                    "HF_ENDPOINT",
                    hub->config->setting, repo_of(hub, repo), file->name, here,
                    (long long)file->bytes);
    }
    hub->done_bytes += file_bytes(path);
    return ST_OK;
}

static enum status fetch_missing(void *arg, int thread_i, int64_t i)
{
    struct hub *hub = arg;
    return fetch_one(hub, hub->file + hub->missing[i], thread_i);
}

/* check_room — fails before the first byte if CACHE_DIR cannot hold the files. */
static enum status check_room(const struct hub *hub, int64_t missing_bytes)
{
    const int64_t space = file_space_bytes(hub->dir);
    char repo[HUB_REPO_MAX + 64], missing[32], free_bytes[32];
    if (space < 0 || missing_bytes <= space)
        return ST_OK;
    return FAIL(ST_STORE,
                "%s=%s: %s more to fetch, but CACHE_DIR=%s has room for %s; make room or set "
                "another CACHE_DIR",
                hub->config->setting, repo_of(hub, repo),
                text_format_bytes(missing, sizeof missing, (double)missing_bytes),
                hub->config->cache_dir,
                text_format_bytes(free_bytes, sizeof free_bytes, (double)space));
}

static enum status fetch_wanted(struct hub *hub)
{
    char path[FILE_PATH_MAX];
    struct parallel parallel = {
        .threads_n = THREADS, .run = fetch_missing, .report = report_files, .arg = hub};
    int64_t missing_bytes = 0, here_bytes = 0;
    hub->missing = memory_new((size_t)hub->files_n + 1, sizeof *hub->missing);
    hub->total_bytes = 0;
    for (int64_t i = 0; i < hub->files_n; i++) {
        const struct hub_file *file = hub->file + i;
        if (!file->is_wanted)
            continue;
        TRY(file_join(path, sizeof path, hub->commit_dir, file->name));
        const int64_t here = is_whole(path, file) ? file_bytes(path) : -1;
        if (here < 0)
            hub->missing[parallel.tasks_n++] = i;
        here_bytes += here >= 0 ? here : 0;
        missing_bytes += here < 0 && file->bytes >= 0 ? file->bytes : 0;
    }
    hub->done_bytes = here_bytes;
    hub->total_bytes = here_bytes + missing_bytes;
    TRY(check_room(hub, missing_bytes));
    if (parallel.tasks_n <= 1 || hub->is_offline) /* offline, the first missing file is an error */
        return parallel.tasks_n > 0 ? fetch_missing(hub, 0, 0) : ST_OK;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return FAIL(ST_RETRY, "out of memory: cannot prepare downloads");
    hub->parallel = &parallel;
    const enum status st = parallel_run(&parallel);
    hub->parallel = NULL;
    return st;
}

/* ---- names, folders ---- */

static enum status name_folders(struct hub *hub)
{
    char id[HUB_REPO_MAX + 64] = "";
    const char *cache_dir = hub->config->cache_dir, *slash = strchr(hub->name.repo, '/');
    if (cache_dir == NULL || cache_dir[0] == '\0')
        return FAIL(ST_BAD_SETTING, "no folder to keep %s=hf://%s in; set CACHE_DIR",
                    hub->config->setting, hub->name.repo);
    text_format(id, sizeof id, "hub/%s--%.*s%s%s", hub->name.is_dataset ? "datasets" : "models",
                slash != NULL ? (int)(slash - hub->name.repo) : 0, hub->name.repo,
                slash != NULL ? "--" : "", slash != NULL ? slash + 1 : hub->name.repo);
    TRY(file_join(hub->dir, sizeof hub->dir, cache_dir, id));
    TRY(file_join(hub->partial_dir, sizeof hub->partial_dir, hub->dir, "partial"));
    return hub->is_offline ? ST_OK : file_make_dirs(hub->partial_dir);
}

/* check_kind — checks that the name fits the setting. */
static enum status check_kind(const struct hub *hub, const char *name)
{
    const char *setting = hub->config->setting;
    if (hub->kind == REMOTE_KIND_DATA && hub->name.path[0] == '\0')
        return FAIL(
            ST_BAD_SETTING,
            "%s=%.200s names no files; add a file, a folder or a glob, such as %.200s/*.jsonl",
            setting, name, name);
    if (hub->kind != REMOTE_KIND_DATA && hub->name.is_dataset)
        return FAIL(ST_BAD_SETTING, "%s=%.200s is a data set; set DATA to it", setting, name);
    return ST_OK;
}

/* open_hub — finds the commit of the name and its files. The caller calls close_hub, also after a
 * failure. */
static enum status open_hub(struct hub *hub)
{
    TRY(read_environment(hub));
    TRY(name_folders(hub));
    return resolve_revision(hub);
}

static void close_hub(struct hub *hub)
{
    for (int64_t i = 0; i < hub->files_n; i++)
        free(hub->file[i].name);
    free(hub->file);
    free(hub->missing);
    explicit_bzero(hub->token, sizeof hub->token);
    free(hub);
}

static enum status fetch_name(struct hub *hub, const char *name, char path_out[FILE_PATH_MAX])
{
    TRY(hub_name_parse(hub->config->setting, name, &hub->name));
    TRY(check_kind(hub, name));
    TRY(open_hub(hub));
    TRY(choose_files(hub, path_out));
    return fetch_wanted(hub);
}

enum status hub_fetch(const struct remote_config *config, enum remote_kind kind, const char *name,
                      char path_out[FILE_PATH_MAX], char revision_out[REMOTE_REVISION_MAX])
{
    struct hub *hub = memory_new(1, sizeof *hub);
    char path[FILE_PATH_MAX];
    hub->config = config;
    hub->kind = kind;
    const enum status st = fetch_name(hub, name, path);
    if (st == ST_OK) {
        text_copy(path_out, FILE_PATH_MAX, path);
        text_copy(revision_out, REMOTE_REVISION_MAX, hub->commit);
    }
    close_hub(hub);
    return st;
}

enum status hub_pin(const struct remote_config *config, const char *name, const cJSON *recorded,
                    cJSON *used, struct text *out)
{
    struct hub_name parsed;
    char key[HUB_REPO_MAX + HUB_REVISION_MAX + 32], commit[REMOTE_REVISION_MAX];
    const char *prefix;
    TRY(hub_name_parse(config->setting, name, &parsed));
    prefix = parsed.is_dataset ? "datasets/" : "";
    if (hub_name_is_commit(parsed.revision)) {
        text_add(out, "%s", name);
        return ST_OK;
    }
    text_format(key, sizeof key, "hf://%s%s@%s", prefix, parsed.repo, parsed.revision);
    text_copy(commit, sizeof commit, recorded != NULL ? json_text(recorded, key) : "");
    if (!hub_name_is_commit(commit)) {
        struct hub *hub = memory_new(1, sizeof *hub);
        hub->config = config;
        hub->name = parsed;
        const enum status st = open_hub(hub);
        text_copy(commit, sizeof commit, hub->commit);
        close_hub(hub);
        TRY(st);
    }
    if (!cJSON_HasObjectItem(used, key))
        cJSON_AddStringToObject(used, key, commit);
    text_add(out, "hf://%s%s@%s%s", prefix, parsed.repo, commit, parsed.rest);
    return ST_OK;
}

#ifdef FUZZ
#include "base/assert.h"

/* Reads a name of DATA, a line, and then the hub's answer for it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct remote_config config = {.setting = "DATA", .cache_dir = "/cache"};
    struct hub *hub = memory_new(1, sizeof *hub);
    const uint8_t *end = memchr(data, '\n', size);
    const size_t n = end != NULL ? (size_t)(end - data) : size;
    char path[FILE_PATH_MAX], *name = memory_new(n + 1, 1);
    memcpy(name, data, n);
    hub->config = &config;
    hub->kind = REMOTE_KIND_DATA;
    text_copy(hub->dir, sizeof hub->dir, "/cache/hub/x");
    if (hub_name_parse("DATA", name, &hub->name) == ST_OK) {
        ASSERT(remote_path_is_safe(hub->name.revision) && remote_path_is_safe(hub->name.repo));
        ASSERT(hub->name.path[0] == '\0' || remote_path_is_safe(hub->name.path));
        if (end != NULL && parse_answer(hub, (const char *)end + 1, size - n - 1) == ST_OK) {
            ASSERT(hub_name_is_commit(hub->commit));
            for (int64_t i = 0; i < hub->files_n; i++)
                ASSERT(remote_path_is_safe(hub->file[i].name));
            if (choose_data(hub, path) == ST_OK)
                ASSERT(text_starts(path, "/cache/hub/x/"));
        }
    }
    free(name);
    close_hub(hub);
    return 0;
}
#endif
