/* streams_graph — events, captures and graphs of streams.h. Included by streams.h only. */
#ifndef CONVOY_TESTS_STREAMS_GRAPH_H
#define CONVOY_TESTS_STREAMS_GRAPH_H

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    (void)flags;
    *out = calloc(1, sizeof **out);
    (*out)->next = streams.events;
    streams.events = *out;
    return cudaSuccess;
}
/* The event stays. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    (void)from, (void)to;
    *ms = 0;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    STREAMS_ONE();
    event->capture = s->capture;
    event->frontier = s->frontier;
    if (!s->capture)
        event->stream = s, event->position = s->posted;
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags)
{
    STREAMS_ONE();
    if (!s->capture || flags != cudaEventRecordExternal)
        return streams_error(cudaErrorInvalidValue);
    streams_add_node(s)->external = event;
    return cudaSuccess;
}
static int streams_is_reached(const void *arg)
{
    const struct CUevent_st *e = arg;
    return e->external_n == 0 && (!e->stream || e->stream->finished >= e->position);
}
static cudaError_t streams_check_event(cudaEvent_t event)
{
    if (!event->capture)
        return cudaSuccess;
    event->capture->is_invalid = 1;
    return streams_error(cudaErrorCapturedEvent);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    STREAMS_FORBIDDEN();
    if (streams_check_event(event) != cudaSuccess)
        return streams_last;
    return streams_wait(streams_is_reached, event);
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    STREAMS_FORBIDDEN();
    if (streams_check_event(event) != cudaSuccess)
        return streams_last;
    return streams_ask(streams_is_reached, event) ? cudaSuccess : streams_error(cudaErrorNotReady);
}

/* What a stream waits for: the event as it is now. */
static int streams_run_wait(void *arg)
{
    struct CUevent_st *e = arg;
    if (e->stream->finished < e->position)
        return 0;
    free(e);
    return 1;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags)
{
    STREAMS_ONE();
    (void)flags;
    if (!event->capture && !s->capture) {
        struct CUevent_st *now = malloc(sizeof *now);
        *now = *event;
        if (event->stream)
            streams_post(s, streams_run_wait, now);
        else
            free(now);
        return cudaSuccess;
    }
    if (!event->capture || (s->capture && s->capture != event->capture)) {
        s->capture->is_invalid = 1;
        return streams_error(cudaErrorStreamCaptureIsolation);
    }
    if (!s->capture)
        s->capture = event->capture, s->frontier.n = 0;
    for (int i = 0; i < event->frontier.n; i++) {
        if (s->frontier.n == STREAMS_FRONTIER)
            abort();
        s->frontier.node[s->frontier.n++] = event->frontier.node[i];
    }
    return cudaSuccess;
}

/* ---- captures ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    STREAMS_ONE();
    streams.captures++;
    if (s->capture || streams_mine || mode != cudaStreamCaptureModeThreadLocal)
        return streams_error(cudaErrorStreamCaptureUnsupported);
    s->capture = streams_mine = calloc(1, sizeof *streams_mine);
    s->capture->origin = s;
    s->capture->next = streams.all;
    streams.all = s->capture;
    s->capture->graph = calloc(1, sizeof *s->capture->graph);
    s->capture->graph->uses = 1;
    s->frontier.n = 0;
    streams.graphs_n++;
    return cudaSuccess;
}

static void streams_unuse(struct CUgraph_st *g)
{
    if (--g->uses > 0)
        return;
    for (int i = 0; i < g->n; i++) {
        free(g->node[i].arg);
        if (g->node[i].work.drop)
            g->node[i].work.drop(g->node[i].work.arg);
    }
    streams.graphs_n--;
    free(g->node);
    free(g);
}

/* Are all nodes of a stream before the ends of the origin? */
static int streams_is_joined(const struct CUgraph_st *g, const struct streams_frontier *origin,
                             const struct streams_frontier *stream)
{
    char *is_before = calloc((size_t)g->n + 1, 1);
    int is_joined = 1;
    for (int i = 0; i < origin->n; i++)
        is_before[origin->node[i]] = 1;
    for (int i = g->n - 1; i >= 0; i--)
        for (int k = 0; is_before[i] && k < g->node[i].after.n; k++)
            is_before[g->node[i].after.node[k]] = 1;
    for (int i = 0; i < stream->n; i++)
        is_joined &= is_before[stream->node[i]];
    free(is_before);
    return is_joined;
}

static int streams_has_calls(const struct CUgraph_st *graph)
{
    int has_calls = 0;
    for (int i = 0; i < graph->n; i++)
        has_calls |= graph->node[i].work.drop != NULL;
    return has_calls;
}

cudaError_t cudaStreamEndCapture(cudaStream_t origin, cudaGraph_t *out)
{
    STREAMS_ONE();
    struct streams_capture *capture = origin->capture;
    cudaError_t error = cudaSuccess;
    *out = NULL;
    if (!capture || capture->origin != origin || streams_mine != capture)
        return streams_error(cudaErrorIllegalState);
    streams_mine = NULL;
    for (struct CUstream_st *s = streams.streams; s; s = s->next) {
        if (s->capture != capture)
            continue;
        if (!streams_is_joined(capture->graph, &origin->frontier, &s->frontier))
            error = cudaErrorStreamCaptureUnjoined;
        s->capture = NULL;
    }
    if (capture->is_invalid)
        error = cudaErrorStreamCaptureInvalidated;
    if (streams_has_calls(capture->graph) && streams.fail_call) {
        streams.fail_call = NULL;
        error = cudaErrorStreamCaptureUnsupported;
    }
    if (error == cudaSuccess)
        *out = capture->graph;
    else
        streams_unuse(capture->graph);
    return error == cudaSuccess ? error : streams_error(error);
}

/* ---- graphs ---- */

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    (void)nodes;
    *n = (size_t)graph->n;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    /* a collective keeps its stream's high priority */
    if (flags != (streams_has_calls(graph) ? cudaGraphInstantiateFlagUseNodePriority : 0))
        return streams_error(cudaErrorInvalidValue);
    *out = malloc(sizeof **out);
    (*out)->graph = graph;
    graph->uses++;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    STREAMS_ONE();
    streams_unuse(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    STREAMS_ONE();
    streams_unuse(exec->graph);
    free(exec);
    return cudaSuccess;
}

static int streams_is_ready(const struct streams_launch *l, int node)
{
    const struct streams_frontier *after = &l->graph->node[node].after;
    for (int i = 0; i < after->n; i++)
        if (!l->is_done[after->node[i]])
            return 0;
    return 1;
}

/* 1: it is done. */
static int streams_run_node(struct streams_launch *l, int i)
{
    struct streams_node *node = &l->graph->node[i];
    if (node->external)
        node->external->external_n--;
    else if (!node->run) {
        if (!l->begun[i])
            l->begun[i] = node->work.begin(node->work.arg);
        return node->work.run(l->begun[i]);
    } else
        streams_run_work(node->run, node->arg);
    streams.in_graphs += node->run == streams_run_kernel;
    return 1;
}

static int streams_run_graph(void *arg)
{
    struct streams_launch *l = arg;
    int waits = 0;
    for (int i = 0; i < l->graph->n; i++) {
        if (l->is_done[i] || !streams_is_ready(l, i))
            continue;
        if ((l->is_done[i] = (char)streams_run_node(l, i)))
            l->left--, streams.nodes_beside += waits;
        else
            waits = 1;
    }
    if (l->left > 0)
        return 0;
    streams_unuse(l->graph);
    free(l->is_done);
    free(l->begun);
    free(l);
    return 1;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    struct streams_launch *l = calloc(1, sizeof *l);
    l->graph = exec->graph;
    l->graph->uses++;
    l->left = l->graph->n;
    l->is_done = calloc((size_t)l->left + 1, 1);
    l->begun = calloc((size_t)l->left + 1, sizeof *l->begun);
    for (int i = 0; i < l->left; i++)
        if (l->graph->node[i].external) {
            struct CUevent_st *e = l->graph->node[i].external;
            e->external_n++;
            e->stream = NULL;
            e->capture = NULL;
        }
    streams.launches++;
    streams_post(s, streams_run_graph, l);
    return cudaSuccess;
}

#endif
