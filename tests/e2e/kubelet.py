#!/usr/bin/env python3
"""kubelet — runs a Job's pods on this machine as Kubernetes would, for tests, and makes trouble.

    kubelet.py IMAGE FOLDER WORK RUNS SEED [SETTING=VALUE ...]

IMAGE is a root folder made by .ci/rootfs; FOLDER an overlay under k8s/; the settings stand for what a user changes in its
ConfigMap. One calm run, then RUNS with a random pod killed, evicted or frozen at a random step; one line of TAP each, without a plan. To be started in
a network namespace of its own (unshare --net). What it does as the real ones do: a name, address, namespaces, user,
capabilities, read-only root and volumes for each container; names by DNS, for pods that are ready or all of them, as the Service says;
three kinds of probes; exit codes by podFailurePolicy; a failed index made anew, after the old pod's end and a pause that doubles, until
backoffLimitPerIndex. Times of the manifest are divided by SPEED (environment; 10), except what the program itself waits.
A JobSet is the one job it makes, with its names. A pod with hostNetwork has a machine of its own, as its anti-affinity demands.
What it leaves out: seccomp, limits of memory and processor, devices, a scheduler; where a manifest asks for CUDA it takes CPUs, and says so.
"""
import copy
import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from urllib.error import HTTPError
from urllib.request import urlopen

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from k8s_check import values  # noqa: E402
from load import slow  # noqa: E402
SPEED = float(os.environ.get('SPEED', '10'))
NET = '10.98.0.'
DOMAIN = 'default.svc.cluster.local'
CANNOT = 125  # exit code of a container that could not be started
NO_GPU = {'DEVICE': 'cpu', 'N_GPU_EACH_NODE': '2'}  # in place of what a manifest with DEVICE=cuda sets


# ---- one container: its own process, python kubelet.py --container JSON

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
RDONLY, NOSUID, REMOUNT, BIND, REC, PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18


def must(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), '%s: %s' % (what, os.strerror(ctypes.get_errno())))


def mount(source, target, kind=None, flags=0, data=None):
    code = lambda s: s.encode() if s is not None else None
    must(libc.mount(code(source), code(target), code(kind), flags, code(data)), 'mount on ' + target)


def furnish(c):
    """The container's root: the image, volumes, names. The mount points are in the image already (prepare_image)."""
    root = c['root']
    mount('none', '/', None, REC | PRIVATE)
    mount(c['image'], root, None, BIND)
    mount('proc', root + '/proc', 'proc', NOSUID)
    mount('sysfs', root + '/sys', 'sysfs', NOSUID | RDONLY)
    mount('tmpfs', root + '/dev', 'tmpfs', NOSUID, 'mode=755')
    for name in ('null', 'zero', 'random', 'urandom'):
        open('%s/dev/%s' % (root, name), 'w').close()
        mount('/dev/' + name, '%s/dev/%s' % (root, name), None, BIND)
    os.mkdir(root + '/dev/shm')
    for path, source in c['files'].items():
        if path.startswith('/dev/'):
            open(root + path, 'w').close()
        mount(source, root + path, None, BIND)
    for m in c['mounts']:
        if m.get('memory'):
            mount('tmpfs', root + m['path'], 'tmpfs', NOSUID, 'mode=1777,size=%d' % m['memory'])
        else:
            mount(m['source'], root + m['path'], None, BIND)
    if c['read_only']:
        mount(None, root, None, REMOUNT | BIND | RDONLY)


def become(c):
    """This process turns into the container's first one."""
    log = os.open(c['log'], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.chroot(c['root'])
    os.chdir(c['workdir'])
    for cap in range(64):
        if libc.prctl(24, cap, 0, 0, 0) != 0:  # PR_CAPBSET_DROP; there is no such capability any more
            break
    os.setgroups([c['group'], c['volume_group']])
    os.setresgid(c['group'], c['group'], c['group'])
    os.setresuid(c['user'], c['user'], c['user'])
    must(libc.prctl(38, 1, 0, 0, 0), 'no new privileges')
    must(libc.prctl(1, signal.SIGKILL, 0, 0, 0), 'to end with the kubelet')
    os.dup2(os.open('/dev/null', os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 64)
    os.execve(c['words'][0], c['words'], c['env'])


def container(c):
    """Namespaces first; then the kubelet lays the cable and says so; then the first process. The exit code is the container's."""
    try:
        must(libc.prctl(1, signal.SIGKILL, 0, 0, 0), 'to end with the kubelet')
        must(libc.unshare(NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET), 'unshare')
        print('here', flush=True)
        sys.stdin.readline()
        socket.sethostname(c['hostname'])
        first = os.fork()
        if first == 0:
            furnish(c)
            become(c)
    except OSError as e:
        print('kubelet: %s' % e, file=sys.stderr, flush=True)
        os._exit(CANNOT)
    print(first, flush=True)
    status = os.waitpid(first, 0)[1]
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


# ---- names

class Names(threading.Thread):
    """A name server for pods: HOSTNAME.SUBDOMAIN.default.svc.cluster.local, of pods that may be told of."""

    def __init__(self, lookup):
        super().__init__(daemon=True)
        self.lookup = lookup
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((NET + '1', 53))

    def run(self):
        while True:
            query, peer = self.socket.recvfrom(512)
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode('ascii', 'replace').lower())
                at += 1 + query[at]
            kind = struct.unpack('>H', query[at + 1:at + 3])[0]
            address = self.lookup('.'.join(labels))
            found = address is not None and kind == 1
            head = query[:2] + struct.pack('>HHHHH', 0x8580 if address else 0x8583, 1, 1 if found else 0, 0, 0)
            answer = b'\xc0\x0c' + struct.pack('>HHIH', 1, 1, 1, 4) + socket.inet_aton(address) if found else b''
            self.socket.sendto(head + query[12:at + 5] + answer, peer)


# ---- pods

def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def sh(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Probes(threading.Thread):
    """Startup, liveness and readiness of one pod, from outside, at the manifest's times."""

    def __init__(self, pod, box):
        super().__init__(daemon=True)
        self.pod = pod
        self.rules = {k: box.get(k) for k in ('startupProbe', 'livenessProbe', 'readinessProbe')}
        self.ports = {p['name']: p['containerPort'] for p in box['ports']}
        self.is_over = False

    def asks(self, rule):
        get = rule['httpGet']
        try:
            url = 'http://%s:%s%s' % (self.pod.address, self.ports.get(get['port'], get['port']), get['path'])
            with urlopen(url, timeout=max(rule.get('timeoutSeconds', 1) / SPEED, 0.5) * slow()) as answer:
                return 200 <= answer.status < 400
        except (OSError, HTTPError):
            return False

    def watch(self, name, failed, seen):
        """One probe: seen(True or False) whenever it is settled, failed() when a pod has to go. Until seen() says so."""
        rule, bad = self.rules[name], 0
        while not self.is_over:
            is_good = self.asks(rule)
            bad = 0 if is_good else bad + 1
            if is_good or bad >= rule.get('failureThreshold', 3):
                if not is_good:
                    failed(name)
                if seen(is_good):
                    return
            time.sleep(rule.get('periodSeconds', 10) / SPEED)

    def run(self):
        self.watch('startupProbe', self.pod.fail, lambda good: good)
        threading.Thread(target=self.watch, args=('livenessProbe', self.pod.fail, lambda good: not good), daemon=True).start()
        self.watch('readinessProbe', lambda name: None, self.pod.set_ready)


class Pod:
    cables = 0  # of all clusters: the end of one on this side goes a little after its pod

    def __init__(self, cluster, index, number):
        template = cluster.job['template']
        spec, box = template['spec'], template['spec']['containers'][0]
        self.cluster, self.index, self.number = cluster, index, number
        self.hostname, self.subdomain = '%s-%d' % (cluster.name, index), spec.get('subdomain')
        Pod.cables += 1
        self.cable, self.address = 'p%d' % Pod.cables, NET + str(10 + Pod.cables % 240)
        self.is_ready, self.why, self.is_disrupted, self.end_at = False, '', False, None
        self.grace = spec.get('terminationGracePeriodSeconds', 30) / SPEED * slow()
        self.log = '%s/%s.%d.log' % (cluster.work, self.hostname, number)
        self.message = '%s/%s.%d.message' % (cluster.work, self.hostname, number)
        with open(self.message, 'w', encoding='utf-8'):
            os.chmod(self.message, 0o666)
        self.begin(spec, box)
        self.probes = Probes(self, box)
        self.probes.start()

    def env(self, box):
        made = {'PATH': '/usr/bin', 'CHECKPOINT_DIR': '/checkpoints', 'HOSTNAME': self.hostname, 'JOB_COMPLETION_INDEX': str(self.index),
                'LINGER': '%dms' % (60000 / SPEED)}
        for source in box.get('envFrom', []):
            made.update(self.cluster.maps[source['configMapRef']['name']])
        labels = self.cluster.job['template']['metadata']['labels']
        for e in box.get('env', []):
            source = e.get('valueFrom', {})
            ref = source.get('secretKeyRef')
            if source.get('fieldRef', {}).get('fieldPath') == 'spec.nodeName':
                made[e['name']] = 'machine-%d' % self.index
            else:
                made[e['name']] = self.cluster.secrets[ref['name']][ref['key']] if ref else values({'env': [*box['env'][:box['env'].index(e) + 1]]}, labels)[e['name']]
        if made.get('DEVICE') == 'cuda':
            made.update(NO_GPU)
        return made

    def mounts(self, spec, box):
        volumes = {v['name']: v for v in spec['volumes']}
        made = []
        for m in box['volumeMounts']:
            v = volumes[m['name']]
            if 'persistentVolumeClaim' in v:
                folder = '%s/claims/%s' % (self.cluster.work, v['persistentVolumeClaim']['claimName'])
            elif v['emptyDir'].get('medium') == 'Memory':
                made.append({'path': m['mountPath'], 'memory': int(v['emptyDir']['sizeLimit'].rstrip('Gi')) << 30})
                continue
            else:
                folder = '%s/empty/%d-%s' % (self.cluster.work, self.number, m['name'])
            if not os.path.isdir(folder):
                os.makedirs(folder)
                os.chown(folder, 0, spec['securityContext']['fsGroup'])
                os.chmod(folder, 0o2775)
            made.append({'path': m['mountPath'], 'source': folder})
        return made

    def begin(self, spec, box):
        root = '%s/roots/%d' % (self.cluster.work, self.number)
        os.makedirs(root)
        user = spec['securityContext']
        hostname = 'machine-%d' % self.index if spec.get('hostNetwork') else self.hostname
        c = {'image': self.cluster.image, 'root': root, 'hostname': hostname, 'log': self.log, 'workdir': '/checkpoints',
             'files': {'/etc/resolv.conf': self.cluster.work + '/resolv.conf', '/dev/termination-log': self.message}, 'mounts': self.mounts(spec, box), 'env': self.env(box),
             'read_only': box['securityContext']['readOnlyRootFilesystem'], 'user': user['runAsUser'], 'group': user['runAsGroup'],
             'volume_group': user['fsGroup'], 'words': box.get('command', ['/usr/bin/convoy']) + box['args']}
        self.launcher = subprocess.Popen([sys.executable, os.path.abspath(__file__), '--container', json.dumps(c)], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(self.log, 'a', encoding='utf-8'))
        if self.launcher.stdout.readline() == 'here\n':
            self.lay_cable()
            self.launcher.stdin.write('go\n')
            self.launcher.stdin.flush()
        self.first = int(self.launcher.stdout.readline() or 0)

    def lay_cable(self):
        near, pid = self.cable, str(self.launcher.pid)
        sh('ip', 'link', 'add', near, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', pid)
        sh('ip', 'link', 'set', near, 'master', 'pods', 'up')
        inside = ['nsenter', '--net=/proc/%s/ns/net' % pid, 'ip']
        sh(*inside, 'addr', 'add', self.address + '/24', 'dev', 'eth0')
        sh(*inside, 'link', 'set', 'eth0', 'up')
        sh(*inside, 'link', 'set', 'lo', 'up')

    def set_ready(self, is_ready):
        self.is_ready = is_ready
        return False

    def fail(self, probe):
        self.why = self.why or probe
        self.stop()

    def stop(self):
        """As kubectl delete: SIGTERM, and SIGKILL when the grace is over."""
        if self.end_at is None:
            self.end_at = time.monotonic() + self.grace
            self.signal(signal.SIGTERM)

    def signal(self, number):
        """To its first process, if it has one: 0 would be all of this kubelet's own."""
        if self.first > 0:
            send(self.first, number)

    def processes(self):
        """Host's numbers of all that run in its namespace; none when it has ended."""
        try:
            mine, found = os.readlink('/proc/%d/ns/pid' % self.first), []
        except OSError:
            return []
        for p in os.listdir('/proc'):
            try:
                if p.isdigit() and os.readlink('/proc/%s/ns/pid' % p) == mine:
                    found.append(int(p))
            except OSError:
                pass
        return found

    def ended(self):
        """Its exit code, None: it runs."""
        if self.end_at is not None and time.monotonic() > self.end_at:
            self.signal(signal.SIGKILL)
        code = self.launcher.poll()
        if code is not None:
            self.probes.is_over = True
            self.is_ready = False
        return code

    def status(self):
        try:
            with urlopen('http://%s:8080/status' % self.address, timeout=0.5 * slow()) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}


# ---- the job

def read_secrets():
    """Those of the folder SECRETS (environment), NAME/KEY; without it the one that the manifests ask for."""
    top = os.environ.get('SECRETS')
    if top is None:
        return {'convoy-token': {'JOB_TOKEN': '%032x' % random.getrandbits(128)}}
    made = {}
    for name in os.listdir(top):
        made[name] = {}
        for key in os.listdir(os.path.join(top, name)):
            with open(os.path.join(top, name, key), encoding='utf-8') as f:
                made[name][key] = f.read()
    return made


def read_job(docs):
    """Name, specification and service of the only job; of a JobSet what its controller makes."""
    kind = lambda k: [d for d in docs if d['kind'] == k]
    if not kind('JobSet'):
        job, service = kind('Job')[0], kind('Service')[0]
        return job['metadata']['name'], job['spec'], service['metadata']['name'], service['spec'].get('publishNotReadyAddresses')
    whole = kind('JobSet')[0]
    replicated, net = whole['spec']['replicatedJobs'][0], whole['spec']['network']
    job = copy.deepcopy(replicated['template']['spec'])
    if net['enableDNSHostnames']:
        job['template']['spec']['subdomain'] = net.get('subdomain', whole['metadata']['name'])
    return '%s-%s-0' % (whole['metadata']['name'], replicated['name']), job, net.get('subdomain', whole['metadata']['name']), net['publishNotReadyAddresses']


class Cluster:
    """The controller of one Job and the node its pods are on."""

    def __init__(self, docs, image, work, settings):
        kind = lambda k: [d for d in docs if d['kind'] == k]
        self.name, self.job, self.service, self.are_all_told = read_job(docs)
        self.maps = {m['metadata']['name']: dict(m['data'], **settings) for m in kind('ConfigMap')}
        self.secrets = read_secrets()
        self.image, self.work = image, work
        os.makedirs(work)
        with open(work + '/resolv.conf', 'w', encoding='ascii') as f:
            f.write('nameserver %s1\nsearch %s svc.cluster.local cluster.local\noptions ndots:5\n' % (NET, DOMAIN))
        self.pods, self.made, self.failures, self.done, self.due = {}, 0, {}, set(), {}
        self.result, self.codes = None, []
        for index in range(self.job['completions']):
            self.due[index] = 0

    def lookup(self, name):
        for p in list(self.pods.values()):
            is_told = p.is_ready or self.are_all_told
            if is_told and p.subdomain == self.service and name == '%s.%s.%s' % (p.hostname, p.subdomain, DOMAIN):
                return p.address
        return None

    def action(self, pod, code):
        for rule in self.job['podFailurePolicy']['rules']:
            codes = rule.get('onExitCodes')
            if codes and codes['operator'] == 'In' and code in codes['values']:
                return rule['action']
            if pod.is_disrupted and any(c['type'] == 'DisruptionTarget' for c in rule.get('onPodConditions', [])):
                return rule['action']
        return 'Count'

    def settle(self, pod, code):
        """A pod has ended: is its index done, tried again, or the job at its end?"""
        del self.pods[pod.index]
        self.codes.append(code)
        if code == 0:
            self.done.add(pod.index)
            if len(self.done) == self.job['completions']:
                self.result = 'Complete'
            return
        action = self.action(pod, code)
        if action == 'FailJob' or code == CANNOT:
            self.result = 'Failed: exit code %d' % code
        elif action == 'Count':
            n = self.failures[pod.index] = self.failures.get(pod.index, 0) + 1
            if n > self.job['backoffLimitPerIndex']:
                self.result = 'Failed: index %d %d times' % (pod.index, n)
        self.due[pod.index] = time.monotonic() + min(10 * 2 ** max(self.failures.get(pod.index, 1) - 1, 0), 360) / SPEED

    def tick(self):
        for pod in list(self.pods.values()):
            code = pod.ended()
            if code is not None:
                self.settle(pod, code)
        for index in range(self.job['completions']):
            if self.result is None and index not in self.pods and index not in self.done and time.monotonic() >= self.due[index]:
                self.pods[index] = Pod(self, index, self.made)
                self.made += 1

    def run(self, seconds, until=lambda: False):
        began = time.monotonic()
        while self.result is None and time.monotonic() - began < seconds * slow() and not until():
            self.tick()
            time.sleep(0.02)

    def close(self):
        for pod in self.pods.values():
            pod.probes.is_over = True
            pod.signal(signal.SIGKILL)
            pod.launcher.wait()

    def logs(self):
        for name in sorted((n for n in os.listdir(self.work) if n.endswith('.log')), key=lambda n: int(n.split('.')[1]))[-4:]:
            with open(os.path.join(self.work, name), encoding='utf-8') as f:
                lines = [line for line in f if '"module"' in line or line[0] != '{']
            for line in lines[-6:]:
                print('# %s: %s' % (name, line.rstrip()[:300]))


# ---- trouble

def weights(cluster):
    """Step and checksum of the newest checkpoint."""
    top = cluster.work + '/claims/convoy-checkpoints'
    if not os.path.isdir(top):  # no claim: the volume of the only pod that has been convoy-0
        top = cluster.work + '/empty/0-checkpoints'
    steps = sorted(s for s in os.listdir(top) if s.startswith('step-')) if os.path.isdir(top) else []
    if not steps:
        return 0, ''
    made = hashlib.sha256()
    for name in sorted(os.listdir(os.path.join(top, steps[-1]))):
        if name.endswith('.safetensors'):
            with open(os.path.join(top, steps[-1], name), 'rb') as f:
                made.update(f.read())
    return int(steps[-1][5:]), made.hexdigest()


def trouble(cluster, rnd, steps):
    """One pod is killed, evicted or frozen at a random step; what was done, and the pod that should stay (None: none)."""
    at, victim = rnd.randrange(1, steps * 3 // 4), rnd.randrange(cluster.job['completions'])
    kind = rnd.choice(['killed', 'killed', 'killed', 'evicted', 'frozen'])
    is_there = lambda: 0 in cluster.pods and victim in cluster.pods and (cluster.pods[0].status().get('step') or 0) >= at
    cluster.run(60, is_there)
    pod, others = cluster.pods.get(victim), [p for p in cluster.pods.values() if p.index != victim]
    if pod is None:
        return 'nobody was there to be ' + kind, None
    if kind == 'killed':
        pod.signal(signal.SIGKILL)
    elif kind == 'evicted':
        pod.is_disrupted = True
        pod.stop()
    else:
        for p in pod.processes():
            send(p, signal.SIGSTOP)
    # An eviction is a stop asked for, which ends all of them after a checkpoint.
    return 'convoy-%d %s at step %d' % (victim, kind, at), others[0] if kind != 'evicted' and others else None


class Tap:
    n = 0

    @classmethod
    def ok(cls, is_so, name, cluster=None):
        cls.n += 1
        print('%s %d - %s' % ('ok' if is_so else 'not ok', cls.n, name), flush=True)
        if not is_so and cluster:
            cluster.logs()
        return is_so


def one_run(make, number, rnd, steps, calm):
    cluster = make(number)
    began = time.monotonic()
    what, stays = trouble(cluster, rnd, steps)
    cluster.run(180)
    took = time.monotonic() - began
    is_kept = stays is None or stays.ended() == 0
    step, sums = weights(cluster)
    is_hit = cluster.made > cluster.job['completions']  # a run that no trouble reached proves nothing
    is_good = is_hit and cluster.result == 'Complete' and (step, sums) == calm and is_kept
    Tap.ok(is_good, '%s: %s in %.1f s, %d pods, step %d, %s weights%s' % (
        what, cluster.result, took, cluster.made, step, 'the same' if sums == calm[1] else 'OTHER',
        '' if stays is None else ', the other pod stayed' if is_kept else ', the other pod DID NOT STAY') + ('' if is_hit else ', NO TROUBLE'), cluster)
    cluster.close()
    if is_good:
        shutil.rmtree(cluster.work)
    return is_good


def prepare_image(image):
    for folder in ('proc', 'sys', 'dev', 'etc', 'checkpoints', 'tmp', 'cache', 'data'):
        os.makedirs(os.path.join(image, folder), exist_ok=True)
    open(os.path.join(image, 'etc/resolv.conf'), 'a', encoding='ascii').close()


def main():
    from k8s_check import render  # noqa: E402
    image, folder, work, runs, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    settings = dict(word.split('=', 1) for word in sys.argv[6:])
    steps, rnd = int(settings['STEPS']), random.Random(seed)
    prepare_image(image)
    sh('ip', 'link', 'add', 'pods', 'type', 'bridge')
    sh('ip', 'addr', 'add', NET + '1/24', 'dev', 'pods')
    sh('ip', 'link', 'set', 'pods', 'up')
    now = {}
    Names(lambda name: now['cluster'].lookup(name)).start()

    def make(name, **more):
        now['cluster'] = Cluster(render(folder), image, '%s/%s' % (work, name), dict(settings, **more))
        return now['cluster']

    cluster = make('calm')
    wants = {e['name']: e.get('value') for e in cluster.job['template']['spec']['containers'][0]['env']}
    if wants.get('DEVICE') == 'cuda':
        print('# no GPUs here: %s instead of %s' % (NO_GPU, {k: wants.get(k) for k in NO_GPU}))
    cluster.run(3, lambda: CANNOT in cluster.codes)
    if cluster.result == 'Failed: exit code %d' % CANNOT:
        print('cannot be made here: ' + open('%s/calm/%s-0.0.log' % (work, cluster.name), encoding='utf-8').read().strip())
        return 0
    cluster.run(120)
    calm = weights(cluster)
    Tap.ok(cluster.result == 'Complete' and calm[0] == steps, 'undisturbed: %s, step %d' % (cluster.result, calm[0]), cluster)
    cluster.close()
    cluster = make('ready', STEPS='1000000')  # on any machine longer than it takes to be seen
    cluster.run(60, lambda: {p.index for p in cluster.pods.values() if p.is_ready} == {0, 1})
    Tap.ok({p.index for p in cluster.pods.values() if p.is_ready} == {0, 1}, 'both pods become ready', cluster)
    cluster.close()
    if runs > 0:
        cluster = make('refused', LR='fast')
        cluster.run(20)
        Tap.ok(cluster.result == 'Failed: exit code 78' and cluster.made == 2, 'a setting that is wrong: %s, no pod is tried again' % cluster.result, cluster)
        with open('%s/refused/%s-0.0.message' % (work, cluster.name), encoding='utf-8') as f:
            said = f.read()
        Tap.ok(said.startswith('exit code 78: LR=fast'), 'kubectl describe would show: %s' % said.strip()[:100], cluster)
        cluster.close()
    good = sum(one_run(make, i, rnd, steps, calm) for i in range(runs))
    if runs > 0:
        print('# after trouble the job completed in %d of %d' % (good, runs))
    return 0


if __name__ == '__main__':
    if sys.argv[1] == '--container':
        container(json.loads(sys.argv[2]))
    sys.exit(main())
