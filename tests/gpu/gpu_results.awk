# gpu_results — the results of gpu.sh as JSON (as=json) or as a page (as=md), from files of tab-separated rows: predicted.tsv, rows,
# measured, times, machine (gpu_lib.sh says what their columns are). What was not measured is null, or "-".
BEGIN {
    FS = "\t"
    is_first = mode == "first"
    column = gpu ~ /H200/ ? 3 : gpu ~ /H100/ ? 2 : 0 # of the predictions; other chips have none
}
FNR == 1 { file_i = FILENAME; sub(/.*\//, "", file_i) }
/^#/ && file_i == "predicted.tsv" { next }
file_i == "predicted.tsv" {
    name_of[++predicted_n] = $1
    unit_of[$1] = $4
    predicted[$1] = column ? $column : "-"
    gate[$1] = column && NF >= column + 3 ? $(column + 3) : "-"
    of[$1] = $7 == "" ? "value" : $7
    next
}
file_i == "rows" { rows[++rows_n] = $0 }
file_i == "measured" { measured[++measured_n] = $0; has[$1] = 1; value_of[$1] = $3; share_of[$1] = $4 }
file_i == "times" { times[++times_n] = $0; time_name = "time " $1 " " $2; has[time_name] = 1 }
file_i == "machine" { machine[++machine_n] = $0 }

function is_number(x) { return x ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }
function number(x) { return is_number(x) ? x + 0 == int(x + 0) ? sprintf("%d", x) : sprintf("%.10g", x) : "null" }
function text(x) {
    gsub(/\\/, "\\\\", x)
    gsub(/"/, "\\\"", x)
    gsub(/[\001-\037]/, " ", x)
    return "\"" x "\""
}
function cell(x) { gsub(/\|/, "\\|", x); return x == "" ? "-" : x }
# met — "yes", "no", or "-": nothing was measured, or there is no gate.
function met(name, x) {
    x = of[name] == "share" ? share_of[name] : value_of[name]
    return !is_number(gate[name]) || !is_number(x) ? "-" : x + 0 >= gate[name] + 0 ? "yes" : "no"
}
function ratio(x, y) { return is_number(x) && is_number(y) && y + 0 > 0 ? sprintf("%.2f", x / y) : "-" }

# ---- JSON ----

function json_rows(list, n, kind,   i, f, line) {
    for (i = 1; i <= n; i++) {
        split(list[i], f, FS)
        line = kind == "step" ? sprintf("{\"name\":%s,\"outcome\":%s,\"seconds\":%s,\"note\":%s", text(f[1]), text(f[2]), number(f[3]), text(f[4])) : ""
        if (kind == "step" && is_first) line = line ",\"planned_seconds\":" number(f[5])
        if (kind == "figure")
            line = sprintf("{\"name\":%s,\"unit\":%s,\"value\":%s,\"of_limit\":%s,\"ms\":%s", text(f[1]), text(f[2]), number(f[3]), number(f[4]), number(f[5]))
        if (kind == "figure" && is_first)
            line = line sprintf(",\"predicted\":%s,\"gate\":%s,\"met\":%s", number(predicted[f[1]]), number(gate[f[1]]), truth[met(f[1])])
        if (kind == "time")
            line = sprintf("{\"operation\":%s,\"shape\":%s,\"calls\":%s,\"ms\":%s,\"share\":%s,\"rate\":%s,\"unit\":%s,\"predicted_ms\":%s", text(f[1]), text(f[2]),
                number(f[3]), number(f[4]), number(f[5]), number(f[6]), text(f[7]), number(predicted["time " f[1] " " f[2]]))
        if (kind == "machine") line = sprintf("%s:%s", text(f[1]), text(f[2]))
        printf "%s%s%s", any++ ? ",\n" : "\n", line, kind == "machine" ? "" : "}"
    }
}
function json() {
    truth["yes"] = "true"; truth["no"] = "false"; truth["-"] = "null"
    printf "{\"what\":\"gpu-%s\",\"when\":\"%s\",\"dry\":%s,\"gpu\":%s,\"driver\":%s,\"version\":%s,\"precision\":%s", mode, when, dry == 1 ? "true" : "false",
        text(gpu), text(driver), text(version), text(precision)
    if (is_first) {
        printf ",\n\"machine\":{"; any = 0; json_rows(machine, machine_n, "machine")
        printf "},\n\"steps\":["; any = 0; json_rows(rows, rows_n, "step")
        printf "],\n\"times\":["; any = 0; json_rows(times, times_n, "time")
        printf "]"
    }
    printf ",\n\"rows\":["
    any = 0
    if (!is_first) json_rows(rows, rows_n, "step")
    json_rows(measured, measured_n, "figure")
    print "\n]}"
}

# ---- a page ----

function md_machine(   i, f) {
    print "\n## Machine\n\n| what | |\n|---|---|"
    for (i = 1; i <= machine_n; i++) { split(machine[i], f, FS); print "| " cell(f[1]) " | " cell(f[2]) " |" }
}
function md_gates(   i, name, x) {
    print "\n## What has to hold\n\n| what | at least | measured | holds |\n|---|---|---|---|"
    for (i = 1; i <= predicted_n; i++) {
        name = name_of[i]
        if (gate[name] == "-" || gate[name] == "") continue
        x = of[name] == "share" ? share_of[name] : value_of[name]
        print "| " cell(name) (of[name] == "share" ? ", share of this run's copy bandwidth" : ", " unit_of[name]) " | " gate[name] " | " cell(x) " | " met(name) " |"
    }
}
function md_steps(   i, f) {
    print is_first ? "\n## Steps\n\n| what | outcome | seconds | planned | note |\n|---|---|---|---|---|" : "\n| what | outcome | seconds | note |\n|---|---|---|---|"
    for (i = 1; i <= rows_n; i++) {
        split(rows[i], f, FS)
        print "| " cell(f[1]) " | " f[2] " | " f[3] " | " (is_first ? cell(f[5]) " | " : "") f[4] " |"
    }
}
function md_figures(   i, f) {
    print is_first ? "\n## Figures\n\n| what | value | unit | share of the limit | ms | predicted | measured / predicted |\n|---|---|---|---|---|---|---|" : \
        "\n| what | value | unit | share of the limit | ms |\n|---|---|---|---|---|"
    for (i = 1; i <= measured_n; i++) {
        split(measured[i], f, FS)
        printf "| %s | %s | %s | %s | %s |", cell(f[1]), cell(f[3]), f[2], cell(f[4]), cell(f[5])
        if (is_first) printf " %s | %s |", cell(predicted[f[1]]), ratio(f[3], predicted[f[1]])
        print ""
    }
    for (i = 1; is_first && i <= predicted_n; i++)
        if (name_of[i] !~ /^time / && !has[name_of[i]]) print "| " name_of[i] " | - | " unit_of[name_of[i]] " | - | - | " predicted[name_of[i]] " | - |"
}
function md_times(   i, f, name) {
    print "\n## Times of operations, gpt2 B64 T1024, one step, without CUDA graphs\n"
    print "| operation | shape | calls | ms | share % | rate | predicted ms | measured / predicted |\n|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= times_n; i++) {
        split(times[i], f, FS)
        name = "time " f[1] " " f[2]
        print "| " f[1] " | " f[2] " | " f[3] " | " f[4] " | " f[5] " | " f[6] " " f[7] " | " cell(predicted[name]) " | " ratio(f[4], predicted[name]) " |"
    }
    for (i = 1; i <= predicted_n; i++)
        if (name_of[i] ~ /^time / && !has[name_of[i]]) { split(name_of[i], f, " "); print "| " f[2] " | " f[3] " | - | - | - | - | " predicted[name_of[i]] " | - |" }
}
function md() {
    print "# gpu-" mode " on " (gpu == "" ? "an unknown GPU" : gpu) ", driver " (driver == "" ? "-" : driver) ", " when
    if (dry == 1) print "\nA dry run without a GPU: nothing here is a result."
    if (is_first) {
        print "\nPredictions were made by reading, before any run on a GPU (predicted.tsv); they are for the H100 SXM and the H200. `-`: not measured,"
        print "or nothing was predicted."
        md_machine(); md_gates()
    }
    if (rows_n) md_steps()
    if (measured_n || is_first) md_figures()
    if (is_first) md_times()
}
END { if (as == "json") json(); else md() }
