#!/usr/bin/env python3
"""k8s_check — do the manifests under k8s/ say what the program does?

    k8s_check.py render FOLDER             the overlay as kubectl would make it, YAML
    k8s_check.py check CONVOY FOLDER       schema and meaning of one overlay; a line for each fault
    k8s_check.py compare FOLDER <OTHER     is this what kubectl kustomize FOLDER printed? Lists by name may be in another order
    k8s_check.py mutants CONVOY SEED [N]   faults planted into the overlays one at a time; says which were not noticed

    k8s_check.py planted CONVOY            faults that were once there, each planted again; says which were not noticed

render does the part of kustomize that these manifests use: resources, components, strategic merge patches, suffixes of names with where
else they stand, images, replacements.
"""
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

MERGE_KEYS = {'containers': 'name', 'env': 'name', 'volumes': 'name', 'volumeMounts': 'mountPath', 'ports': 'containerPort'}
NO_RESTART = [64, 65, 74, 76, 77, 78, 79]  # a person is needed
ELSEWHERE = [1, 66, 69, 80, 81]  # the machine, or data that are not there yet: tried again
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
with open(os.path.join(TOP, 'VERSION'), encoding='ascii') as version_file:
    VERSION = version_file.read().strip()
SHIPPED = '/usr/share/convoy/alice.txt'  # .ci/rootfs puts it there
GPUS = {'cuda': 'nvidia.com/gpu', 'hip': 'amd.com/gpu'}
JOBSET = {  # JobSet v1alpha2, as far as it is used: key -> kind of value, or a table of its own
    'apiVersion': str, 'kind': str, 'metadata': dict,
    'spec': {'ttlSecondsAfterFinished': int, 'network': {'enableDNSHostnames': bool, 'publishNotReadyAddresses': bool},
             'failurePolicy': {'maxRestarts': int, 'rules': list}, 'replicatedJobs': list}}


# ---- rendering

def merge(base, patch):
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        elif isinstance(value, list) and key in MERGE_KEYS and isinstance(base.get(key), list):
            name = MERGE_KEYS[key]
            for item in value:
                same = [b for b in base[key] if b.get(name) == item.get(name)]
                if same:
                    merge(same[0], item)
                else:
                    base[key].append(copy.deepcopy(item))
        else:
            base[key] = copy.deepcopy(value)


def identity(doc):
    return doc['apiVersion'], doc['kind'], doc['metadata']['name']


def load(path):
    with open(path, encoding='utf-8') as f:
        return [d for d in yaml.safe_load_all(f) if d]


def set_image(node, images):
    if isinstance(node, list):
        for n in node:
            set_image(n, images)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == 'image' and isinstance(value, str):
                for i in images:
                    if value.split(':')[0] == i['name']:
                        node[key] = i.get('newName', i['name']) + (':' + i['newTag'] if 'newTag' in i else '')
            else:
                set_image(value, images)


def places(node, path):
    """Every (holder, key) that a path of a fieldSpec or a replacement leads to; lists are walked, [name=x] picks from one."""
    if isinstance(node, list):
        pick = re.fullmatch(r'\[(\w+)=(\S+)\]', path[0]) if path else None
        rest = path[1:] if pick else path
        for n in node:
            if not pick or n.get(pick[1]) == pick[2]:
                yield from places(n, rest)
    elif isinstance(node, dict) and path[0] in node:
        if len(path) == 1:
            yield node, path[0]
        else:
            yield from places(node[path[0]], path[1:])


NAMED = [('ConfigMap', None, 'spec/template/spec/containers/envFrom/configMapRef/name'),
         ('PersistentVolumeClaim', None, 'spec/template/spec/volumes/persistentVolumeClaim/claimName')]


def add_suffix(docs, references, suffix):
    """Names with a suffix, also where others name them."""
    renamed = {(d['kind'], d['metadata']['name']) for d in docs}
    for d in docs:
        d['metadata']['name'] += suffix
    for kind, inside, path in NAMED + references:
        words = [w.replace('\0', '/') for w in path.replace('\\/', '\0').split('/')]
        for d in docs:
            if inside in (None, d['kind']):
                for holder, key in places(d, words):
                    if (kind, holder[key]) in renamed:
                        holder[key] += suffix


def replace(docs, rule):
    source = rule['source']
    found = [d for d in docs if d['kind'] == source['kind'] and d['metadata']['name'].startswith(source['name'])]
    holder, key = next(places(found[0], source['fieldPath'].split('.')))
    for target in rule['targets']:
        for d in docs:
            if d['kind'] == target['select']['kind']:
                for path in target['fieldPaths']:
                    for to, name in places(d, path.split('.')):
                        to[name] = type(to[name])(holder[key])


def build(folder, docs, references):
    top = load(os.path.join(folder, 'kustomization.yaml'))[0]
    unknown = set(top) - {'apiVersion', 'kind', 'resources', 'components', 'patches', 'images', 'configurations', 'nameSuffix', 'replacements'}
    if unknown:
        raise SystemExit('%s: render does not know %s' % (folder, sorted(unknown)))
    for name in top.get('configurations', []):
        for r in load(os.path.join(folder, name))[0]['nameReference']:
            references += [(r['kind'], f.get('kind'), f['path']) for f in r['fieldSpecs']]
    for r in top.get('resources', []):
        path = os.path.join(folder, r)
        docs += build(path, [], references) if os.path.isdir(path) else load(path)
    for c in top.get('components', []):
        build(os.path.join(folder, c), docs, references)
    for p in top.get('patches', []):
        for patch in load(os.path.join(folder, p['path'])):
            found = [d for d in docs if identity(d) == identity(patch)]
            if len(found) != 1:
                raise SystemExit('%s/%s: patches %d documents' % (folder, p['path'], len(found)))
            if patch.get('$patch') == 'delete':
                docs.remove(found[0])
            else:
                merge(found[0], patch)
    if 'nameSuffix' in top:
        add_suffix(docs, references, top['nameSuffix'])
    set_image(docs, top.get('images', []))
    for rule in top.get('replacements', []):
        replace(docs, rule)
    return docs


def render(folder):
    return build(folder, [], [])


def in_order(node):
    """The same with lists of named things in the order of their names."""
    if isinstance(node, dict):
        return {k: in_order(v) for k, v in node.items()}
    if isinstance(node, list):
        made = [in_order(n) for n in node]
        return sorted(made, key=lambda n: n['name']) if all(isinstance(n, dict) and 'name' in n for n in made) else made
    return node


# ---- what the program's own help says

class Program:
    def __init__(self, convoy):
        ask = lambda *words: subprocess.run([convoy, *words], stdout=subprocess.PIPE, check=True, text=True,
                                            env={'PATH': os.environ['PATH']}).stdout
        self.settings = json.loads(ask('config', 'JSON=1'))
        self.codes = {int(m) for m in re.findall(r'^ *(\d+) ', ask('help', 'exit-codes'), re.M)}
        self.convoy = convoy
        self.refused = {}

    def takes(self, settings):
        """What the program says against these settings together, "" nothing. Asked once for each set. A GPU that is not here
        is no fault of the manifest's."""
        key = tuple(sorted((k, str(v)) for k, v in settings.items()))
        if key not in self.refused:
            words = ['%s=%s' % (k, v) for k, v in key if (k, v) != ('DEVICE', 'cuda') and k != 'JOB_TOKEN']
            got = subprocess.run([self.convoy, 'config', *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env={'PATH': os.environ['PATH'], 'JOB_TOKEN': '6f1ed002ab5595859014ebf0951522d9', 'JOB_COMPLETION_INDEX': '0'})
            self.refused[key] = got.stderr.strip() if got.returncode != 0 else ''
        return self.refused[key]


# ---- meaning

class Faults(list):
    def need(self, is_so, text):
        if not is_so:
            self.append(text)


def check_policy(job, program, f):
    policy = job.get('podFailurePolicy', {}).get('rules', [])
    f.need(len(policy) > 0, 'no podFailurePolicy')
    listed, ignored, counted = [], [], []
    for rule in policy:
        codes = rule.get('onExitCodes')
        if codes is None:
            for c in rule.get('onPodConditions', []):
                f.need(c.get('status') == 'True', 'onPodConditions: status is not "True"')
            continue
        values = codes.get('values', [])
        f.need(values == sorted(set(values)) and values, 'exit codes are not sorted and unique: %s' % values)
        f.need(0 not in values, 'exit code 0 is no failure')
        f.need(all(v in program.codes for v in values), 'exit codes that the program does not have: %s' % values)
        f.need(codes.get('operator') == 'In', 'exit codes: the operator is not In')
        f.need(codes.get('containerName') == 'convoy', 'exit codes of a container that is not there')
        listed += values if rule.get('action') == 'FailJob' else []
        ignored += values if rule.get('action') == 'Ignore' else []
        counted += values if rule.get('action') == 'Count' else []
    f.need(sorted(listed) == NO_RESTART, 'FailJob for %s, not %s' % (listed, NO_RESTART))
    f.need(counted == ELSEWHERE, 'Count for %s, not %s' % (counted, ELSEWHERE))
    f.need(ignored == [143], 'Ignore for %s, not for what was asked to stop' % ignored)
    f.need(any(r.get('action') == 'Ignore' and any(c.get('type') == 'DisruptionTarget' for c in r.get('onPodConditions', []))
               for r in policy), 'disruptions are not ignored')


def expand(text, env):
    """$(NAME), as the kubelet puts values in."""
    return re.sub(r'\$\((\w+)\)', lambda m: str(env.get(m[1], m[0])), text)


def values(box, labels):
    """Variables of the container as its program sees them: labels by their paths, $(NAME) of those before it. None: from elsewhere."""
    made = {}
    for e in box.get('env', []):
        path = e.get('valueFrom', {}).get('fieldRef', {}).get('fieldPath', '')
        label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
        made[e['name']] = labels.get(label[1]) if label else expand(e['value'], made) if 'value' in e else None
    return made


def check_labels(docs, labels, name, f):
    f.need(labels == {'app.kubernetes.io/name': 'convoy', 'app.kubernetes.io/instance': name}, 'the pods are not of the run %s: %s' % (name, labels))
    for d in docs:
        of = d['metadata'].get('labels', {}).get('app.kubernetes.io/instance')
        f.need(of == name, '%s is of the run %s, not %s' % (d['kind'], of, name))


def check_spread(pod, labels, f):
    spread = pod.get('topologySpreadConstraints', [])
    f.need(len(spread) == 1 and spread[0].get('topologyKey') == 'kubernetes.io/hostname' and spread[0].get('maxSkew') == 1 and
           spread[0].get('whenUnsatisfiable') in ('ScheduleAnyway', 'DoNotSchedule') and
           spread[0].get('labelSelector', {}).get('matchLabels') == labels, 'the pods of the run are not spread over machines')


def check_job(job, program, f, master, n_settings):
    labels = job['template']['metadata']['labels']
    f.need(job.get('completionMode') == 'Indexed', 'completionMode is not Indexed')
    pod = job['template']['spec']
    f.need(len(pod['containers']) == 1 and pod['containers'][0]['name'] == 'convoy', 'not one container named convoy')
    box = pod['containers'][0]
    env = values(box, labels)
    n = n_settings.get('N_NODES')
    f.need('N_NODES' not in env, 'N_NODES is typed twice')
    f.need(str(job.get('completions')) == str(job.get('parallelism')) == n,
           'completions %s, parallelism %s and N_NODES %s are not equal' % (job.get('completions'), job.get('parallelism'), n))
    f.need(job.get('backoffLimitPerIndex', 0) >= 1, 'an index is not started again')
    f.need(job.get('maxFailedIndexes') == 0, 'the job outlives a failed index')
    f.need('backoffLimit' not in job, 'backoffLimit counts all indexes together')
    f.need(job.get('podReplacementPolicy') == 'Failed', 'a pod may be replaced before its end')
    check_policy(job, program, f)
    check_pod(pod, f)
    check_spread(pod, labels, f)
    for e in box['env']:
        f.need(('value' in e) != ('valueFrom' in e), '%s has no value, or two' % e['name'])
    check_box(box, pod, program, f)
    f.need(env.get('MASTER_ADDR') == master, 'MASTER_ADDR is %s, not %s' % (env.get('MASTER_ADDR'), master))
    token = [e for e in box['env'] if e['name'] == 'JOB_TOKEN']
    f.need(len(token) == 1 and token[0].get('valueFrom', {}).get('secretKeyRef', {}).get('key') == 'JOB_TOKEN',
           'JOB_TOKEN does not come from a secret')
    all_set = dict(n_settings, **{k: v for k, v in env.items() if v is not None})
    f.need(env.get('RUN_NAME') == labels.get('app.kubernetes.io/instance'), 'RUN_NAME is %s' % env.get('RUN_NAME'))
    check_data(all_set, box, f)
    f.need(any(e['name'] == 'NODE_NAME' and e.get('valueFrom', {}).get('fieldRef', {}).get('fieldPath') == 'spec.nodeName'
               for e in box['env']), 'a failing check cannot name the machine: no NODE_NAME from spec.nodeName')
    f.need(all_set.get('CHECK') == 'quick', 'machines are not checked before the first step: CHECK=%s' % all_set.get('CHECK'))
    for name in list(n_settings) + [e['name'] for e in box['env']]:
        f.need(name in program.settings or name == 'NODE_NAME' or name.startswith(('AWS_', 'HF_')), '%s is no setting' % name)
    for name, value in all_set.items():
        f.need(isinstance(value, str), '%s is no text' % name)
    said = program.takes({k: v for k, v in all_set.items() if k in program.settings})
    f.need(said == '', 'the program refuses: ' + said)
    for name in ('NODE_ID', 'RANK', 'LOCAL_RANK'):
        f.need(name not in all_set, '%s would be the same in every pod' % name)
    folder = 'CACHE_DIR' if (all_set.get('CHECKPOINT_DIR') or '').startswith('s3://') else 'CHECKPOINT_DIR'
    f.need(any(m['mountPath'] == all_set.get(folder) for m in box['volumeMounts']), '%s is no volume' % folder)
    ports = {p.get('name'): p['containerPort'] for p in box.get('ports', [])}
    for port, setting in (('status', 'STATUS_PORT'), ('meet', 'MASTER_PORT')):
        f.need(str(ports.get(port)) == str(all_set.get(setting, program.settings[setting]['value'])),
               'port %s is %s, not %s' % (port, ports.get(port), setting))
    scrape = job['template'].get('metadata', {}).get('annotations', {}).get('prometheus.io/port')
    f.need(scrape == str(ports.get('status')), 'prometheus.io/port is %s' % scrape)


def check_data(all_set, box, f):
    data, mounts = all_set.get('DATA', ''), box['volumeMounts']
    is_gpu = any(e['name'] == 'DEVICE' and e.get('value') in GPUS for e in box['env'])
    f.need(not (is_gpu and data == SHIPPED), 'GPUs train on the sample text')
    inside = [m for m in mounts if (data + '/').startswith(m['mountPath'] + '/')]
    f.need(data == SHIPPED or inside, 'DATA=%s is neither the text in the image nor in a volume' % data)
    f.need(all(m.get('readOnly') is True for m in inside), 'DATA may be written to')
    f.need(any(m['mountPath'] == all_set.get('CACHE_DIR') for m in mounts), 'CACHE_DIR is no volume')


def check_pod(pod, f):
    f.need(pod.get('restartPolicy') == 'Never', 'restartPolicy is not Never, which podFailurePolicy wants')
    f.need(pod.get('terminationGracePeriodSeconds', 30) >= 60, 'less than a minute for the last checkpoint')
    f.need(pod.get('enableServiceLinks') is False, 'variables of services among the settings')
    f.need(pod.get('automountServiceAccountToken') is False, 'a token of the cluster that nothing needs')
    own = pod.get('securityContext', {})
    f.need(own.get('runAsNonRoot') is True and own.get('runAsUser') == 65532, 'not the user 65532')
    f.need(own.get('fsGroup') == 65532, 'volumes are not writable for the user')
    f.need(own.get('seccompProfile', {}).get('type') == 'RuntimeDefault', 'no seccomp profile')
    if pod.get('hostNetwork'):
        f.need(pod.get('dnsPolicy') == 'ClusterFirstWithHostNet', 'hostNetwork without its dnsPolicy')
        apart = pod.get('affinity', {}).get('podAntiAffinity', {}).get('requiredDuringSchedulingIgnoredDuringExecution', [])
        f.need(any(a.get('topologyKey') == 'kubernetes.io/hostname' and
                   a.get('labelSelector', {}).get('matchLabels') == {'app.kubernetes.io/name': 'convoy'} for a in apart),
               'hostNetwork, but two pods may share a machine and its ports')
    else:
        f.need('dnsPolicy' not in pod, 'a dnsPolicy without hostNetwork')
    for flag in ('hostPID', 'hostIPC', 'shareProcessNamespace'):
        f.need(not pod.get(flag), flag)


def check_box(box, pod, program, f):
    device = {e['name']: e.get('value') for e in box['env']}.get('DEVICE')
    f.need(box.get('image') == 'convoy:' + VERSION + {'cpu': '-cpu', 'hip': '-rocm'}.get(device, ''), 'image %s is not of VERSION %s' % (box.get('image'), VERSION))
    f.need(box.get('imagePullPolicy') == 'IfNotPresent', 'an image that was loaded into the machine is pulled')
    f.need(box.get('terminationMessagePolicy') == 'FallbackToLogsOnError', 'kubectl describe does not show why it ended')
    f.need(box.get('args') == ['train'] and 'command' not in box, 'the container does not train')
    for probe, path in (('startupProbe', '/livez'), ('livenessProbe', '/livez'), ('readinessProbe', '/readyz')):
        get = box.get(probe, {}).get('httpGet', {})
        f.need(get.get('path') == path and get.get('port') == 'status', '%s asks %s' % (probe, get))
    start = box.get('startupProbe', {})
    f.need(start.get('periodSeconds', 10) * start.get('failureThreshold', 3) >= 120, 'two minutes to start are too few')
    own = box.get('securityContext', {})
    f.need(own.get('allowPrivilegeEscalation') is False, 'privileges may be gained')
    f.need(own.get('readOnlyRootFilesystem') is True, 'the root is writable')
    f.need(not own.get('privileged'), 'privileged')
    caps = own.get('capabilities', {})
    f.need(caps.get('drop') == ['ALL'] and set(caps.get('add', [])) <= {'IPC_LOCK'}, 'capabilities %s' % caps)
    limits = box.get('resources', {}).get('limits', {})
    is_rdma = any(k.startswith('rdma/') for k in limits)
    f.need(is_rdma == ('IPC_LOCK' in caps.get('add', [])), 'InfiniBand and IPC_LOCK belong together')
    f.need('memory' in limits, 'no limit of memory')
    vendors = [v for v in GPUS.values() if v in limits]
    gpus = limits[vendors[0]] if vendors else None
    env = {e['name']: e.get('value') for e in box['env']}
    f.need(vendors == [v for d, v in GPUS.items() if d == device], 'DEVICE %s with GPUs of %s' % (device, vendors))
    f.need(all(any(t.get('key') == v for t in pod.get('tolerations', [])) for v in vendors), 'the taint of machines with GPUs is not tolerated')
    f.need('amd.com/gpu' not in limits or pod['securityContext'].get('supplementalGroups'), 'no group of /dev/kfd')
    f.need(gpus is None or gpus == env.get('N_GPU_EACH_NODE'), '%s GPUs, N_GPU_EACH_NODE %s' % (gpus, env.get('N_GPU_EACH_NODE')))
    volumes = {v['name']: v for v in pod.get('volumes', [])}
    mounted = {m['mountPath']: m['name'] for m in box.get('volumeMounts', [])}
    for name in mounted.values():
        f.need(name in volumes, 'volume %s is not there' % name)
    for name, v in volumes.items():
        f.need(name in mounted.values(), 'volume %s is not mounted' % name)
        f.need(len(v) == 2, 'volume %s has no source, or two' % name)
        f.need('emptyDir' not in v or 'sizeLimit' in v['emptyDir'], 'volume %s may fill the machine' % name)
    shm = volumes.get(mounted.get('/dev/shm'), {}).get('emptyDir', {})
    f.need(shm.get('medium') == 'Memory' and 'sizeLimit' in shm, '/dev/shm is no memory, or without a limit')
    f.need('/tmp' in mounted, 'a read-only root wants a /tmp')


def check_service(docs, job, f):
    services = [d for d in docs if d['kind'] == 'Service']
    f.need(len(services) == 1, '%d services' % len(services))
    if not services:
        return
    name, spec = services[0]['metadata']['name'], services[0]['spec']
    labels = job['spec']['template']['metadata']['labels']
    f.need(job['spec']['template']['spec'].get('subdomain') == name, 'subdomain is not the name of the service, %s' % name)
    f.need(spec.get('clusterIP') == 'None', 'the service is not headless')
    f.need(spec.get('publishNotReadyAddresses') is True, 'names only for pods that are ready: none would get ready')
    f.need(spec.get('selector') == labels, 'the service selects other pods')
    ports = {p.get('name'): p['containerPort'] for p in job['spec']['template']['spec']['containers'][0].get('ports', [])}
    f.need([p.get('name') for p in spec.get('ports', [])] == list(ports), 'the service has other ports than the pods')
    for p in spec.get('ports', []):
        f.need(p.get('targetPort') in ports and p['port'] == ports[p['targetPort']], 'port %s of the service leads nowhere' % p)


def check_network(docs, labels, box, f):
    policies = [d for d in docs if d['kind'] == 'NetworkPolicy']
    f.need(len(policies) == 1, '%d network policies: any pod reaches the data plane' % len(policies))
    status = [p['containerPort'] for p in box['ports'] if p['name'] == 'status']
    for p in policies:
        spec = p['spec']
        f.need(spec.get('podSelector') == {'matchLabels': labels}, 'the network policy is for other pods')
        f.need(spec.get('policyTypes') == ['Ingress'], 'the network policy is not for what comes in')
        own, others = {'from': [{'podSelector': {'matchLabels': labels}}]}, {'ports': [{'protocol': 'TCP', 'port': status[0]}]}
        f.need(spec.get('ingress') == [own, others], 'the network policy lets in other than its own pods, and all to the status port')


def check_monitor(docs, labels, f):
    for m in (d for d in docs if d['kind'] == 'PodMonitor'):
        f.need(m['apiVersion'] == 'monitoring.coreos.com/v1' and set(m['spec']) == {'selector', 'podMetricsEndpoints'}, 'PodMonitor: other keys')
        f.need(m['spec'].get('selector') == {'matchLabels': labels}, 'the PodMonitor is for other pods')
        ends = m['spec'].get('podMetricsEndpoints', [])
        f.need(len(ends) == 1 and ends[0].get('path') == '/metrics' and re.fullmatch(r'\d+s', ends[0].get('interval', '')) and
               set(ends[0]) == {'port', 'path', 'interval'} and ends[0].get('port') == 'status', 'PodMonitor: %s' % ends)


def check_whole(docs, holder, job, f):
    """What a Job and a JobSet have alike: the run's name on everything, who reaches it, how long it stays, queues."""
    labels, box = job['template']['metadata']['labels'], job['template']['spec']['containers'][0]
    check_labels(docs, labels, holder['metadata']['name'], f)
    check_network(docs, labels, box, f)
    check_monitor(docs, labels, f)
    check_volumes(docs, job['template']['spec'], f)
    f.need(3600 <= holder['spec'].get('ttlSecondsAfterFinished', 0) <= 7 * 86400, 'it stays for ever when it has ended, or is gone before it is seen')
    queue = holder['metadata'].get('labels', {}).get('kueue.x-k8s.io/queue-name')
    f.need(('suspend' in holder['spec']) == (queue is not None) and holder['spec'].get('suspend', True) is True, 'suspended without a queue, or not in one')


def check_volumes(docs, pod, f):
    claims = {d['metadata']['name']: d for d in docs if d['kind'] == 'PersistentVolumeClaim'}
    used = {v['persistentVolumeClaim']['claimName'] for v in pod['volumes'] if 'persistentVolumeClaim' in v}
    existing = {v['persistentVolumeClaim']['claimName'] for v in pod['volumes'] if v['name'] == 'data' and 'persistentVolumeClaim' in v}
    f.need(set(claims) == used - existing, 'claims %s are created, %s used, %s exist' % (sorted(claims), sorted(used), sorted(existing)))
    for name, c in claims.items():
        f.need(c['spec'].get('accessModes') == ['ReadWriteMany'], 'claim %s cannot be mounted by all' % name)
        f.need('storage' in c['spec'].get('resources', {}).get('requests', {}), 'claim %s asks for no room' % name)


def check_shape(value, shape, place, f):
    """Is this made as JobSet's types say? For want of its schema."""
    if isinstance(shape, dict):
        f.need(isinstance(value, dict), '%s is no table' % place)
        for k in value if isinstance(value, dict) else []:
            f.need(k in shape, '%s.%s is not known' % (place, k))
            if k in shape:
                check_shape(value[k], shape[k], '%s.%s' % (place, k), f)
    else:
        f.need(isinstance(value, shape), '%s is no %s' % (place, shape.__name__))


def check_jobset(docs, program, f, settings):
    js = [d for d in docs if d['kind'] == 'JobSet'][0]
    check_shape(js, JOBSET, 'jobset', f)
    f.need(js['apiVersion'] == 'jobset.x-k8s.io/v1alpha2', 'apiVersion of the JobSet')
    net, jobs, name = js['spec'].get('network', {}), js['spec'].get('replicatedJobs', []), js['metadata']['name']
    f.need(net.get('enableDNSHostnames') is True and net.get('publishNotReadyAddresses') is True, 'pods without names')
    f.need(len(jobs) == 1 and set(jobs[0]) == {'name', 'replicas', 'template'} and jobs[0]['replicas'] == 1, 'not one job')
    f.need(any(r.get('action') == 'FailJobSet' and 'PodFailurePolicy' in r.get('onJobFailureReasons', [])
               for r in js['spec'].get('failurePolicy', {}).get('rules', [])), 'started again where a person is needed')
    f.need(not [d for d in docs if d['kind'] in ('Job', 'Service')], 'a job or a service beside the JobSet')
    job = jobs[0]['template']
    check_job(job['spec'], program, f, '%s-%s-0-0.%s' % (name, jobs[0]['name'], name), settings)
    check_whole(docs, js, job['spec'], f)
    return {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': name}, 'spec': job['spec']}


def check(docs, program):
    f = Faults()
    try:
        maps = [d for d in docs if d['kind'] == 'ConfigMap']
        f.need(len(maps) == 1, '%d maps of settings' % len(maps))
        settings = maps[0]['data'] if maps else {}
        jobs = [d for d in docs if d['kind'] == 'Job']
        schema = [d for d in docs if d['kind'] not in ('JobSet', 'PodMonitor')]
        if any(d['kind'] == 'JobSet' for d in docs):
            jobs = [check_jobset(docs, program, f, settings)]
            schema += jobs
        else:
            f.need(len(jobs) == 1, '%d jobs' % len(jobs))
            check_service(docs, jobs[0], f)
            name = jobs[0]['metadata']['name']
            check_job(jobs[0]['spec'], program, f, '%s-0.%s' % (name, name), settings)
            check_whole(docs, jobs[0], jobs[0]['spec'], f)
        froms = jobs[0]['spec']['template']['spec']['containers'][0].get('envFrom', [])
        f.need([e.get('configMapRef', {}).get('name') for e in froms] == [m['metadata']['name'] for m in maps],
               'the settings are not read')
    except (KeyError, TypeError, AttributeError, IndexError) as e:
        f.append('not made as expected: %r' % e)
        schema = docs
    if kubernetes_validate is not None:
        for d in schema:
            if d.get('kind') in ('JobSet', 'PodMonitor'):
                continue
            try:
                kubernetes_validate.validate(d, kubernetes_validate.latest_version(), strict=True)
            except Exception as e:  # its own classes, one for each kind of fault
                f.append('schema: %s: %s' % (d.get('kind'), (str(e) or repr(e)).splitlines()[0]))
    return f


# ---- mutants

def leaves(node, path=()):
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []
    for k, v in list(items):
        yield path + (k,), v
        yield from leaves(v, path + (k,))


def at(node, path):
    for k in path:
        node = node[k]
    return node


def is_free(path):
    """What may be otherwise without being wrong: names of labels, sizes, times, how often."""
    words = [str(p) for p in path]
    free = {'name', 'storage', 'cpu', 'memory', 'periodSeconds', 'timeoutSeconds', 'failureThreshold', 'runAsGroup',
            'fsGroupChangePolicy', 'maxRestarts', 'sizeLimit', 'tolerations', 'data', 'prometheus.io/scrape', 'medium', 'ttlSecondsAfterFinished',
            'kueue.x-k8s.io/queue-name', 'interval', 'reference', 'pullPolicy', 'suspend', 'supplementalGroups'}
    if words[:2] == ['metadata', 'labels']:
        return words[-1] != 'app.kubernetes.io/instance'
    return any(w in free for w in words) or words[-1] in ('metadata', 'requests', 'annotations', 'limits')


def change(value, rnd):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rnd.choice([1, 7]) if value else 5
    if isinstance(value, str):
        return rnd.choice([value + 'x', value[:-1] or 'x', value[::-1] + '-', str(rnd.randrange(2, 99))])
    if isinstance(value, list):
        return value[::-1] if len(value) > 1 and not isinstance(value[0], dict) else []
    return None


def mutate(docs, rnd):
    """One fault: a value changed, a key misspelt or left out. Returns what it was."""
    while True:
        i = rnd.randrange(len(docs))
        path, value = rnd.choice(list(leaves(docs[i])))
        if is_free(path):
            continue
        holder, how = at(docs[i], path[:-1]), rnd.choice(['change', 'change', 'drop', 'misspell'])
        place = '%s %s' % (docs[i]['kind'], '.'.join(map(str, path)))
        if how == 'drop' or (how == 'change' and isinstance(value, dict)):
            del holder[path[-1]]
            return place + ' left out'
        if how == 'misspell':
            if isinstance(holder, list):
                continue
            holder[path[-1] + 'z'] = holder.pop(path[-1])
            return place + ' misspelt'
        new = 5 if path[-1] == 'terminationGracePeriodSeconds' else change(value, rnd) # longer is no fault
        if new == value:
            continue
        holder[path[-1]] = new
        return '%s: %r for %r' % (place, new, value)


def the_job(docs):
    return [d for d in docs if d['kind'] == 'Job'][0]['spec']


def the(docs, kind):
    return [d for d in docs if d['kind'] == kind][0]


def box_of(docs):
    return the_job(docs)['template']['spec']['containers'][0]


def drop(holder, *keys):
    for k in keys:
        del holder[k]


def rename(docs, suffix):
    """As a suffix does that reaches only what kustomize knows by itself."""
    add_suffix(docs, [], suffix)


def with_all():
    """overlays/own with the components that it leaves to clusters that have them."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(TOP, 'k8s/overlays/own'), folder, dirs_exist_ok=True)
        path = os.path.join(folder, 'kustomization.yaml')
        top = load(path)[0]
        top['resources'] = [os.path.join(TOP, 'k8s/overlays/gpu')]
        top['components'] = [os.path.join(TOP, 'k8s/components', c) for c in ('kueue', 'monitoring')]
        with open(path, 'w', encoding='utf-8') as file:
            yaml.safe_dump(top, file)
        return render(folder)


# What was wrong once, each as a fault to plant into the overlay gpu (amd: into overlays/amd, own: into overlays/own with all components).
ONCE = {
    'no DATA': lambda d: drop(the(d, 'ConfigMap')['data'], 'DATA'),
    'DATA where no volume is': lambda d: the(d, 'ConfigMap')['data'].update(DATA='/nowhere'),
    'a suffix that leaves MASTER_ADDR, selector and labels': lambda d: rename(d, '-b'),
    'MASTER_ADDR as a word': lambda d: [e for e in box_of(d)['env'] if e['name'] == 'MASTER_ADDR'][0].update(value='convoy-1.convoy'),
    'MASTER_ADDR before the name that it takes': lambda d: box_of(d)['env'].sort(key=lambda e: e['name'] != 'MASTER_ADDR'),
    'a service that selects every run': lambda d: drop(the(d, 'Service')['spec']['selector'], 'app.kubernetes.io/instance'),
    'pods without their run': lambda d: drop(the_job(d)['template']['metadata']['labels'], 'app.kubernetes.io/instance'),
    'completions of another number': lambda d: the_job(d).update(completions=3),
    'parallelism of another number': lambda d: the_job(d).update(parallelism=1),
    'N_NODES of another number': lambda d: the(d, 'ConfigMap')['data'].update(N_NODES='5'),
    'N_NODES typed twice': lambda d: box_of(d)['env'].append({'name': 'N_NODES', 'value': '2'}),
    'image: latest': lambda d: box_of(d).update(image='convoy:latest'),
    'image without a tag': lambda d: box_of(d).update(image='convoy'),
    'imagePullPolicy: Always': lambda d: box_of(d).update(imagePullPolicy='Always'),
    'no terminationMessagePolicy': lambda d: drop(box_of(d), 'terminationMessagePolicy'),
    'no NetworkPolicy': lambda d: d.remove(the(d, 'NetworkPolicy')),
    'a NetworkPolicy that lets in every run': lambda d: drop(the(d, 'NetworkPolicy')['spec']['ingress'][0]['from'][0]['podSelector']['matchLabels'],
                                                             'app.kubernetes.io/instance'),
    'a NetworkPolicy that opens every port': lambda d: drop(the(d, 'NetworkPolicy')['spec']['ingress'][1], 'ports'),
    'no spread over machines': lambda d: drop(the_job(d)['template']['spec'], 'topologySpreadConstraints'),
    'no ttlSecondsAfterFinished': lambda d: drop(the_job(d), 'ttlSecondsAfterFinished'),
    'a /tmp without a limit': lambda d: [v for v in the_job(d)['template']['spec']['volumes'] if v['name'] == 'tmp'][0].update(emptyDir={}),
    'a cache without a limit': lambda d: [v for v in the_job(d)['template']['spec']['volumes'] if v['name'] == 'cache'][0].update(emptyDir={}),
    'a cache in no volume': lambda d: drop(the(d, 'ConfigMap')['data'], 'CACHE_DIR'),
    '80 ends the job': lambda d: the_job(d)['podFailurePolicy']['rules'][1].update(action='FailJob'),
    '80 is not told of': lambda d: the_job(d)['podFailurePolicy']['rules'].pop(1),
    'own: a PodMonitor of other pods': lambda d: the(d, 'PodMonitor')['spec']['selector']['matchLabels'].update({'app.kubernetes.io/instance': 'x'}),
    'own: a PodMonitor of another port': lambda d: the(d, 'PodMonitor')['spec']['podMetricsEndpoints'][0].update(port='meet'),
    'own: a queue, but not suspended': lambda d: drop(the_job(d), 'suspend'),
    'own: data that may be written': lambda d: drop([m for m in box_of(d)['volumeMounts'] if m['name'] == 'data'][0], 'readOnly'),
    'own: a new, empty claim for the data': lambda d: d.append({**copy.deepcopy(the(d, 'PersistentVolumeClaim')), 'metadata': {'name': 'convoy-data'}}),
    'the GPUs of AMD for DEVICE=cuda': lambda d: box_of(d)['resources']['limits'].update({'amd.com/gpu': box_of(d)['resources']['limits'].pop('nvidia.com/gpu')}),
    'amd: the image of NVIDIA': lambda d: box_of(d).update(image='convoy:' + VERSION),
    'amd: DEVICE=cuda': lambda d: [e for e in box_of(d)['env'] if e['name'] == 'DEVICE'][0].update(value='cuda'),
    'amd: no group of the device files': lambda d: drop(the_job(d)['template']['spec']['securityContext'], 'supplementalGroups'),
    'amd: the taint is not tolerated': lambda d: drop(the_job(d)['template']['spec'], 'tolerations'),
    'the sample text on GPUs': lambda d: the(d, 'ConfigMap')['data'].update(DATA=SHIPPED),
    'data that are not there yet end the job': lambda d: [the_job(d)['podFailurePolicy']['rules'][i]['onExitCodes'].update(values=v)
                                                          for i, v in ((0, [64, 65, 66] + NO_RESTART[2:]), (1, [1, 69, 80, 81]))],
}


def planted(program):
    missed, whole = [], {o: render(os.path.join(TOP, 'k8s/overlays', o)) for o in ('amd', 'gpu')}
    whole['own'] = with_all()
    for name, plant in ONCE.items():
        docs = copy.deepcopy(whole.get(name.split(':')[0], whole['gpu']))
        plant(docs)
        if not check(docs, program):
            missed.append(name)
    return missed


def mutants(program, folders, seed, n):
    rnd, missed = random.Random(seed), []
    whole = [render(f) for f in folders]
    for i in range(n):
        docs = copy.deepcopy(whole[i % len(folders)])
        what = mutate(docs, rnd)
        if not check(docs, program):
            missed.append('%s: %s' % (folders[i % len(folders)], what))
    return missed


def main():
    top = os.path.join(TOP, 'k8s')
    if sys.argv[1] == 'render':
        yaml.safe_dump_all(render(sys.argv[2]), sys.stdout, sort_keys=False)
        return 0
    if sys.argv[1] == 'compare':
        ours, others = [sorted((in_order(d) for d in docs), key=identity) for docs in (render(sys.argv[2]), yaml.safe_load_all(sys.stdin))]
        print('\n'.join('%s %s' % identity(o)[1:] for o in ours + others if o not in ours or o not in others), end='')
        return 0 if ours == others else 1
    program = Program(sys.argv[2])
    if sys.argv[1] == 'check':
        faults = check(render(sys.argv[3]), program)
        print('\n'.join(faults), end='\n' if faults else '')
        return 1 if faults else 0
    if sys.argv[1] == 'planted':
        missed = planted(program)
        print('\n'.join(missed + ['%d of %d' % (len(ONCE) - len(missed), len(ONCE))]))
        return 0
    folders = [os.path.join(top, 'base')] + [os.path.join(top, 'overlays', o) for o in sorted(os.listdir(os.path.join(top, 'overlays')))]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 200
    missed = mutants(program, folders, int(sys.argv[3]), n)
    print('\n'.join(missed), end='\n' if missed else '')
    print('%d of %d' % (n - len(missed), n))
    return 0


if __name__ == '__main__':
    sys.exit(main())
