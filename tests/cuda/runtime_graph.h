/* runtime_graph — the calls of runtime.h that capture a stream and launch graphs: a captured stream
 * keeps its work, and a graph runs it again. Included by runtime.h only. */
#ifndef CONVOY_TESTS_RUNTIME_GRAPH_H
#define CONVOY_TESTS_RUNTIME_GRAPH_H

static void runtime_graph_free(struct CUgraph_st *g)
{
    for (size_t i = 0; i < g->n; i++)
        free(g->node[i].arg);
    free(g->node);
    *g = (struct CUgraph_st){NULL, 0};
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaStreamBeginCapture");
    if (runtime_mine.captured || stream == NULL || mode != cudaStreamCaptureModeThreadLocal)
        return runtime_mine.last = cudaErrorStreamCaptureUnsupported;
    runtime_mine.captured = stream;
    runtime_mine.is_invalid = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    RUNTIME_ONE();
    *out = NULL;
    if (!runtime_mine.captured || stream != runtime_mine.captured)
        return runtime_mine.last = cudaErrorIllegalState;
    runtime_mine.captured = NULL;
    cudaError_t error = runtime_call("cudaStreamEndCapture");
    error = runtime_mine.is_invalid ? cudaErrorStreamCaptureInvalidated : error;
    if (error != cudaSuccess) {
        runtime_graph_free(&runtime_mine.capture);
        return runtime_mine.last = error;
    }
    *out = malloc(sizeof **out);
    **out = runtime_mine.capture;
    runtime_mine.capture = (struct CUgraph_st){NULL, 0};
    runtime.graphs_n++;
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    RUNTIME_ONE();
    (void)nodes;
    *n = graph->n;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaGraphInstantiate");
    RUNTIME_FORBIDDEN();
    if (flags != 0)
        return cudaErrorInvalidValue;
    *out = malloc(sizeof **out);
    (*out)->graph = (struct CUgraph_st){malloc(graph->n * sizeof *graph->node), graph->n};
    for (size_t i = 0; i < graph->n; i++) {
        struct runtime_node *node = &(*out)->graph.node[i];
        *node = graph->node[i];
        node->arg = malloc(node->bytes);
        memcpy(node->arg, graph->node[i].arg, node->bytes);
    }
    runtime.graphs_n++;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaGraphLaunch");
    RUNTIME_FORBIDDEN();
    for (size_t i = 0; i < exec->graph.n; i++) {
        if (exec->graph.node[i].run == runtime_record)
            runtime.nodes_after_event = exec->graph.n - i - 1;
        runtime.in_graph = 1;
        int rc = runtime_device(stream, exec->graph.node[i].run, exec->graph.node[i].arg,
                                exec->graph.node[i].bytes);
        runtime.in_graph = 0;
        if (exec->graph.node[i].run == runtime_record)
            clocks_record(&(*(cudaEvent_t *)exec->graph.node[i].arg)->time, runtime_clock(stream));
        if (rc != 0)
            return runtime_mine.last = cudaErrorLaunchFailure;
    }
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    RUNTIME_ONE();
    runtime_graph_free(graph);
    free(graph);
    runtime.graphs_n--;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    RUNTIME_ONE();
    runtime_graph_free(&exec->graph);
    free(exec);
    runtime.graphs_n--;
    return cudaSuccess;
}

#endif
