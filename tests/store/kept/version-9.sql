PRAGMA page_size=4096;

BEGIN TRANSACTION;

CREATE TABLE blobs (
    hash BLOB NOT NULL PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE definitions (
    hash TEXT NOT NULL PRIMARY KEY,
    workflow TEXT NOT NULL,
    notation TEXT NOT NULL,
    source TEXT NOT NULL,
    canonical TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO definitions VALUES('11459c8289931867832be878ccb9128978ffa340e2c6b91e9b2ecdd43c654706','function','python','@session.workflow
async def function(ctx: WorkflowContext) -> Any:
    ctx.emit("progress", {"percent": 10})
    one = await ctx.run("add", 1)
    many = await asyncio.gather(
        *(ctx.run("add", n) for n in range(3)), ctx.gate("Go on?", choices=["yes", "no"])
    )
    first = [(await one)["output"] for one in asyncio.as_completed([ctx.run("add", n) for n in (7, 8)])]
    await ctx.sleep(0.01)
    said = await ctx.run("echo", "hello")
    failed = await ctx.run("echo", object())
    return [
        one["output"],
        many[-1],
        first,
        said["output"],
        failed["success"],
        ctx.now().year > 2000,
        ctx.new_id(),
    ]
','{"kind":"python","module":"journals.workflows","name":"register.<locals>.function","source":"f5a0670d92dd181aa6a40d032e0d5c4bd19bfc9f09b357ecaa36666868cead16","steps":[]}');
INSERT INTO definitions VALUES('20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025','waiting','python','@s.workflow
async def waiting(ctx):
    await ctx.run("add",1)
    return await ctx.gate("Never answered")
','{"kind":"python","module":"__main__","name":"main.<locals>.waiting","source":"18c9df3b426a3d7bc809c745f7fc7c4849ead31bbed99dc1dcc4fe2036916424","steps":[]}');
INSERT INTO definitions VALUES('41477daee3a3174e50cecb17c1d9cfb167e01c8b26b261e49570b30c9d7df0fe','failing','python','@s.workflow
async def failing(ctx):
    await ctx.run("add",1)
    raise ValueError("no such branch")
','{"kind":"python","module":"__main__","name":"main.<locals>.failing","source":"7ef8878d0b7b6481e82c580d7fd8848f26b5938760878e9e11dbb124b2d4bda4","steps":[]}');

CREATE TABLE "deletions" (
    journal INTEGER PRIMARY KEY -- its run is gone already, but not all of its events
) STRICT;

CREATE TABLE event_types (
    id INTEGER PRIMARY KEY, -- the number that stands for the type in `events`
    name TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO event_types VALUES(1,'node_started');
INSERT INTO event_types VALUES(2,'node_completed');
INSERT INTO event_types VALUES(3,'step_started');
INSERT INTO event_types VALUES(4,'step_completed');
INSERT INTO event_types VALUES(5,'workflow_started');
INSERT INTO event_types VALUES(6,'workflow_completed');
INSERT INTO event_types VALUES(7,'output_chunk');
INSERT INTO event_types VALUES(8,'gate_waiting');
INSERT INTO event_types VALUES(9,'gate_answered');
INSERT INTO event_types VALUES(10,'timer_started');
INSERT INTO event_types VALUES(11,'timer_fired');

CREATE TABLE "events" (
    id INTEGER PRIMARY KEY,
    journal INTEGER NOT NULL,
    seq INTEGER NOT NULL, -- of its last event
    at REAL NOT NULL,
    type ANY NOT NULL, -- a number of `event_types`, or the type itself
    path TEXT NOT NULL,
    settles ANY, -- 1 for its own path
    data ANY NOT NULL, -- text, the hash of a blob, or the hash of emptied data after a zero byte
    hash BLOB NOT NULL,
    first_at REAL, -- the first of two events
    first_type ANY,
    first_path TEXT,
    first_settles ANY,
    first_data TEXT
) STRICT;
INSERT INTO events VALUES(1,1,1,1794747448.6863406,5,'',NULL,'{"run_id":"01a1df48-bd6a-7077-9358-b576222d0ba4","workflow_id":"function","steps":[],"input":0,"params":{},"session":"default","definition":"11459c8289931867832be878ccb9128978ffa340e2c6b91e9b2ecdd43c654706","seed":"76febb464cf896cc7ad524492f8362dc","limits":{"depth":16}}',X'9F1C7B5D4468270E79BA89BC39D544F408CAEB5201D3F0610A8B8BD19CC8AFA1',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(2,1,2,1794747448.6872463,'progress','',NULL,'{"percent":10}',X'623B857C235832B484FE548354EB678F730FF70CF8E6BC7C3AF135F5115E2268',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(3,1,3,1794747448.6873214,1,'/add',NULL,'{"node_id":"add","hash":"6b86b273ff34fce19d6b804eff5a3f57","input":1}',X'360C879333D0F46DD58F6AE5ED8B0FF7AC1647F08A33BCC64DF9FD78301FBEC5',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(4,1,4,1794747448.6873918,2,'/add',1,'{"node_id":"add","success":true,"duration_ms":0.039,"result":{"success":true,"output":2,"attributes":{}}}',X'15F65F0F0ABB3AE70CF9F614F50C7D5D0A024060A85A8B428503D10883BB3C22',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(5,1,5,1794747448.68794,1,'/add[2]',NULL,'{"node_id":"add","hash":"5feceb66ffc86f38d952786c6d696c79","input":0}',X'CC7B9B8FBABEB07BF31A97D3ADB37BDC9832892B0E55CE6D1F0E6C343177A547',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(6,1,6,1794747448.6879992,2,'/add[2]',1,'{"node_id":"add","success":true,"duration_ms":0.019,"result":{"success":true,"output":1,"attributes":{}}}',X'2546DA4127282149AF85981159BA5E7C35BFADEE073D207CDC498C671A2A750E',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(7,1,7,1794747448.6880286,1,'/add[3]',NULL,'{"node_id":"add","hash":"6b86b273ff34fce19d6b804eff5a3f57","input":1}',X'0117126397A2CB18D0D1FE31EED89F9DE5D1CA063138954F41F73F1AE7A9D59C',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(8,1,8,1794747448.688053,2,'/add[3]',1,'{"node_id":"add","success":true,"duration_ms":0.012,"result":{"success":true,"output":2,"attributes":{}}}',X'2EF8B8B7BD1DD0272B8FF656353DB5F482C22F8889720483ECC7C1B20235A744',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(9,1,9,1794747448.6880684,1,'/add[4]',NULL,'{"node_id":"add","hash":"d4735e3a265e16eee03f59718b9b5d03","input":2}',X'5C17A41DC1D9ED3DEBC2C6FB8856826A77E1780E3D3D379CFA38426B9ECD21F0',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(10,1,10,1794747448.688087,2,'/add[4]',1,'{"node_id":"add","success":true,"duration_ms":0.012,"result":{"success":true,"output":3,"attributes":{}}}',X'BDA104E1A7D3B0623DC6D55635673EC2E8EADE3746E61DA2ADF20712B7B4BFD5',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(11,1,11,1794747448.688146,8,'/gate',NULL,'{"gate_id":"2d9ac1d2","prompt":"Go on?","choices":["yes","no"],"options":null,"hash":"a383f3fd487cb1151d1d8cf1de5becae"}',X'F91946B48D841440864F84987FBEF095D7CD7CFEE1743FAFD37F035DAAE5C452',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(12,1,12,1794747448.6887593,9,'/gate',1,'{"gate_id":"2d9ac1d2","answer":"yes","response":"yes","by":""}',X'A7E5E15003C42E9C24FFF2B604AC2477B0B370B0BC2A915BC23FDB9FA46B94A7',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(13,1,13,1794747448.6895235,1,'/add[6]',NULL,'{"node_id":"add","hash":"2c624232cdd221771294dfbb310aca00","input":8}',X'87A0112C608491BA72F5CE830CA52B557A0EA14DACF30454D0853DE772857A8E',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(14,1,14,1794747448.6895504,2,'/add[6]',1,'{"node_id":"add","success":true,"duration_ms":0.014,"result":{"success":true,"output":9,"attributes":{}}}',X'6C1151D4AB932F60F565819ED56E4A90C5CEE9E8E64965FC09D98A0A7062FA22',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(15,1,15,1794747448.68957,1,'/add[5]',NULL,'{"node_id":"add","hash":"7902699be42c8a8e46fbbb4501726517","input":7}',X'3908A0B1AB948C57808DC5E4212FE2DCFF302FB4DA2A7B129665C2B875B7339F',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(16,1,16,1794747448.689592,2,'/add[5]',1,'{"node_id":"add","success":true,"duration_ms":0.011,"result":{"success":true,"output":8,"attributes":{}}}',X'7B9157C59037A8EE5D0432DB6B2B1C5E901583893F12925F3D3F5399B7EA2F95',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(17,1,17,1794747448.6901999,10,'/sleep',NULL,'{"seconds":0.01,"deadline":1794747448.7001925,"hash":"f42332b31c30036dfa0940c227ae1588"}',X'3EE2EC91A0B2177C164B3F20DA354F0D8CB030DE4CA1E74F4C4C9C5F2C5A63D8',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(18,1,18,1794747448.700949,11,'/sleep',1,'{}',X'AD1C53EFBC150E5838A4F631E062ACE30465E891CB25020695404D7296ED5BFA',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(19,1,19,1794747448.7034638,1,'/echo',NULL,'{"node_id":"echo","hash":"5aa762ae383fbb727af3c7a36d4940a5","input":"hello"}',X'1BD3B370729A76D843F95C4DDB174534C09E9A950F857EB4717769E0737A6933',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(20,1,20,1794747448.7337446,7,'/echo',NULL,'{"stream":"stdout","text":"hello"}',X'74CD45EEDF7BC2C081F20949D17A2D3292E544BD9C726CA38DB80C66258080EC',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(21,1,21,1794747448.7343566,7,'/echo',NULL,'{"stream":"stdout","text":" done"}',X'DAC0A944C651524A144791CC468784ADC6A14700DE839371CA2452A9B2BE2AE6',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(22,1,22,1794747448.737447,2,'/echo',1,'{"node_id":"echo","success":true,"duration_ms":33.907,"result":{"success":true,"output":"hello done","attributes":{"exit_code":0,"stderr":""}}}',X'E91149AC36BB828ABFAA55AB649112784AFF6222CF010FE2DC7272D22A155C1C',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(23,1,23,1794747448.7383533,1,'/echo[2]',NULL,'{"node_id":"echo","hash":"74234e98afe7498fb5daf1f36ac2d78a","input":null}',X'B811757F7385504F3B5ADD828E7C377F49C2EC8E9657E6DA880E84A1AC576297',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(24,1,24,1794747448.7384133,2,'/echo[2]',1,'{"node_id":"echo","success":false,"duration_ms":0.009,"error":"a value of type object cannot be written as JSON; return plain data instead","error_type":"NotJson","result":{"success":false,"output":null,"error":"a value of type object cannot be written as JSON; return plain data instead","error_type":"NotJson","attributes":{}}}',X'26EE47044E249825C9645187B050602EC4EE9B5F1DA7775B66F288FB92AAAF2F',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(25,1,25,1794747448.7389102,'clock_read','',NULL,'{"now":"2026-11-15T12:57:28.738880+00:00"}',X'473448D44FEBE0894673EC3D9B10C7C3A23F05C6FE1FF800F4A0867D802C0C23',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(26,1,26,1794747448.7390728,6,'','/','{"run_id":"01a1df48-bd6a-7077-9358-b576222d0ba4","result":[2,"yes",[9,8],"hello done",false,true,"b2403115-ae34-429b-80bf-c3a0160324c5"],"duration_s":0.053}',X'196822298F6973D72588A8D9B933EA6C8CA2783BADF3047FC6E5DFE5DD0ECB74',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(27,2,1,1794747448.741481,5,'',NULL,'{"run_id":"01a1df48-bda4-70b6-b6e9-1de09f3ab724","workflow_id":"failing","steps":[],"input":"add a button","params":{},"session":"default","definition":"41477daee3a3174e50cecb17c1d9cfb167e01c8b26b261e49570b30c9d7df0fe","seed":"ddcd4a28d5ba8d651fd113de17004f1d","limits":{"depth":16}}',X'D183BFFC3AADF85F9EFF4E83A54B7150BCF244A085D944DC21AD306C98123E47',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(28,2,2,1794747448.7420938,1,'/add',NULL,'{"node_id":"add","hash":"6b86b273ff34fce19d6b804eff5a3f57","input":1}',X'3AD3D3A3F5E2EB0645313F571B995810C8D0F3A34CD75BFAF83BAFAFA7EF0281',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(29,2,3,1794747448.742145,2,'/add',1,'{"node_id":"add","success":true,"duration_ms":0.034,"result":{"success":true,"output":2,"attributes":{}}}',X'BBBAB50B6ABB513E0BB06D922D0A3DFAAECDD9A7924E01AD13D25CF8AEEEE605',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(30,2,4,1794747448.742601,'workflow_failed','','/','{"run_id":"01a1df48-bda4-70b6-b6e9-1de09f3ab724","error":"no such branch","error_type":"ValueError","duration_s":0.001}',X'4D5DE2A3DECBB8096EDAAA0687F8E56F63AA5E4F3D3208F1636B33CB01CA476F',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(31,3,1,1794747448.7436984,5,'',NULL,'{"run_id":"01a1df48-bda7-715c-bb31-0cc858049456","workflow_id":"waiting","steps":[],"input":"please wait","params":{},"session":"default","definition":"20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025","seed":"ad93a5df905c2ca3c60a2fa854e45ef4","limits":{"depth":16},"key":"once"}',X'301C84E839D510049D85335AECF251392F909760C8B1141FD6632791A951DB0F',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(32,3,2,1794747448.7442842,1,'/add',NULL,'{"node_id":"add","hash":"6b86b273ff34fce19d6b804eff5a3f57","input":1}',X'A0EA1F5A7991240B710CEA71936B13B4EA8B9DCC1247E5FAD9DF8CEC7CC8C909',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(33,3,3,1794747448.7443235,2,'/add',1,'{"node_id":"add","success":true,"duration_ms":0.024,"result":{"success":true,"output":2,"attributes":{}}}',X'4E11B58C6D52E61B89E7BD17287904AAB652293E8E65933F476AC25F5AF8FA8A',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(34,3,4,1794747448.7447984,8,'/gate',NULL,'{"gate_id":"04a1f03e","prompt":"Never answered","choices":null,"options":null,"hash":"004654337a6dd672538630bb23aac135"}',X'03FAA3EAED2C6A6ADE4F0C62C51DE105A0873C569C0DF68E007EA6B69CD43097',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(35,4,1,1794747448.7449257,5,'',NULL,'{"run_id":"01a1df48-bda8-771e-84b9-3657af543a3b","workflow_id":"waiting","steps":[],"input":"to be stopped","params":{},"session":"default","definition":"20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025","seed":"d71e89e2a3d10faccf98d5fad5692699","limits":{"depth":16}}',X'6C281182BB7FEE4313C9D3942FC502D96C1AD5153C65E5542C5F3E7591FF6568',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(36,4,2,1794747448.7456572,1,'/add',NULL,'{"node_id":"add","hash":"6b86b273ff34fce19d6b804eff5a3f57","input":1}',X'DFFA0F64AAEF5BF2987309C57973B304CD042BB220D82D897D907CCE9BC87CAC',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(37,4,3,1794747448.7456863,2,'/add',1,'{"node_id":"add","success":true,"duration_ms":0.015,"result":{"success":true,"output":2,"attributes":{}}}',X'9242874892B3A52DBAC71528D926D807106CD2D46FB56E35A7BA4571F40E1668',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(38,4,4,1794747448.746201,8,'/gate',NULL,'{"gate_id":"f98e31c7","prompt":"Never answered","choices":null,"options":null,"hash":"004654337a6dd672538630bb23aac135"}',X'8259C66DBADC30ECCF36AE789DAA5B5D51D807483B2FBAECB585E663A87745EA',NULL,NULL,NULL,NULL,NULL);
INSERT INTO events VALUES(39,4,5,1794747448.7565026,'workflow_cancelled','','/','{"run_id":"01a1df48-bda8-771e-84b9-3657af543a3b","reason":"","killed":[]}',X'3B5DAAAF4197374C96AE4B5E280A89BE48870DD6854C7192B0C8ABCA02EF5BBE',NULL,NULL,NULL,NULL,NULL);
CREATE UNIQUE INDEX events_by_journal ON events (journal, seq);
CREATE INDEX events_with_blobs ON events (data) WHERE typeof(data) = 'blob' AND length(data) = 32;

CREATE TABLE fact_versions (
    session TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL -- the highest ever used, of facts that are gone too
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    at REAL NOT NULL,
    asserted_by TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE journals (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO journals VALUES(1,'01a1df48-bd6a-7077-9358-b576222d0ba4');
INSERT INTO journals VALUES(2,'01a1df48-bda4-70b6-b6e9-1de09f3ab724');
INSERT INTO journals VALUES(3,'01a1df48-bda7-715c-bb31-0cc858049456');
INSERT INTO journals VALUES(4,'01a1df48-bda8-771e-84b9-3657af543a3b');

CREATE TABLE messages (
    conversation TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    run TEXT,
    PRIMARY KEY (conversation, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE patches (
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    workflow TEXT NOT NULL,
    since REAL NOT NULL, -- when a run of the workflow evaluated the patch first
    PRIMARY KEY (session, name, workflow)
) STRICT, WITHOUT ROWID;

CREATE TABLE properties (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO properties VALUES('step_usage_since','1795118413.698');
INSERT INTO properties VALUES('summarized_since',1794957655.047);

CREATE TABLE replies (
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    at REAL NOT NULL,
    asked TEXT NOT NULL,
    reply TEXT NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE resumes (
    run TEXT NOT NULL PRIMARY KEY,
    times INTEGER NOT NULL -- that it was about to be taken up, since that last went well
) STRICT, WITHOUT ROWID;

CREATE TABLE run_counts (
    session TEXT NOT NULL,
    definition TEXT NOT NULL, -- empty for runs without one
    state TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL, -- when the first of them was started
    PRIMARY KEY (session, definition, state)
) STRICT, WITHOUT ROWID;
INSERT INTO run_counts VALUES('default','11459c8289931867832be878ccb9128978ffa340e2c6b91e9b2ecdd43c654706','completed',1,1794747448.68626);
INSERT INTO run_counts VALUES('default','20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025','cancelled',1,1794747448.744893);
INSERT INTO run_counts VALUES('default','20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025','waiting',1,1794747448.743653);
INSERT INTO run_counts VALUES('default','41477daee3a3174e50cecb17c1d9cfb167e01c8b26b261e49570b30c9d7df0fe','failed',1,1794747448.741413);

CREATE TABLE "runs" (
    id INTEGER PRIMARY KEY, -- of its journal
    session TEXT NOT NULL,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    key TEXT,
    parent TEXT,
    wake REAL,
    definition TEXT,
    conversation TEXT,
    label TEXT,
    summary TEXT,
    seq INTEGER NOT NULL -- the last event when the row was written: a journal that ends before it lost its end
) STRICT;
INSERT INTO runs VALUES(1,'default','function','completed',1794747448.68626,1794747448.7391205,NULL,NULL,NULL,'11459c8289931867832be878ccb9128978ffa340e2c6b91e9b2ecdd43c654706',NULL,NULL,NULL,26);
INSERT INTO runs VALUES(2,'default','failing','failed',1794747448.741413,1794747448.7426262,NULL,NULL,NULL,'41477daee3a3174e50cecb17c1d9cfb167e01c8b26b261e49570b30c9d7df0fe',NULL,NULL,NULL,4);
INSERT INTO runs VALUES(3,'default','waiting','waiting',1794747448.743653,NULL,'once',NULL,NULL,'20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025',NULL,NULL,NULL,4);
INSERT INTO runs VALUES(4,'default','waiting','cancelled',1794747448.744893,1794747448.7565286,NULL,NULL,NULL,'20d935aafa8b4baf0c7da5f52729cec1a74944ec2d3289e9b9948da37f70a025',NULL,NULL,NULL,5);
CREATE TRIGGER count_changed_run AFTER UPDATE OF session, definition, state ON runs
WHEN (old.session, old.state) <> (new.session, new.state) OR old.definition IS NOT new.definition
BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE session = old.session AND definition = ifnull(old.definition, '') AND state = old.state;
    INSERT INTO run_counts VALUES (new.session, ifnull(new.definition, ''), new.state, 1, new.started)
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = number + 1,
        since = iif(number = 0, excluded.since, min(since, excluded.since));
END;
CREATE TRIGGER count_deleted_run AFTER DELETE ON runs
BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE session = old.session AND definition = ifnull(old.definition, '') AND state = old.state;
END;
CREATE TRIGGER count_new_run AFTER INSERT ON runs
BEGIN
    INSERT INTO run_counts VALUES (new.session, ifnull(new.definition, ''), new.state, 1, new.started)
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = number + 1,
        since = iif(number = 0, excluded.since, min(since, excluded.since));
END;
CREATE INDEX runs_by_conversation ON runs (conversation, started) WHERE conversation IS NOT NULL;
CREATE UNIQUE INDEX runs_by_key ON runs (session, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_label ON runs (label, started) WHERE label IS NOT NULL;
CREATE INDEX runs_by_start ON runs (session, started);
CREATE INDEX runs_by_state ON runs (state, session, started);

CREATE TABLE step_usage (
    session TEXT NOT NULL,
    day TEXT NOT NULL,
    workflow TEXT NOT NULL,
    step TEXT NOT NULL, -- empty for what concerns whole runs
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    amount ANY NOT NULL,
    PRIMARY KEY (session, day, workflow, step, model, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tags (
    id INTEGER NOT NULL, -- of the journal of the run
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    session TEXT NOT NULL,
    started REAL NOT NULL, -- when the run was started, by which lists are ordered
    PRIMARY KEY (id, kind, name)
) STRICT, WITHOUT ROWID;
INSERT INTO tags VALUES(1,'tag','team','docs','default',1794747448.68626);
CREATE INDEX tags_by_value ON tags (session, kind, name, value, started);

CREATE TABLE usage (
    session TEXT NOT NULL,
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    amount ANY NOT NULL,
    PRIMARY KEY (session, day, model, name)
) STRICT, WITHOUT ROWID;
INSERT INTO usage VALUES('default','2025-11-15','','tokens',10);
INSERT INTO usage VALUES('default','2025-11-15','','turns',1);
INSERT INTO usage VALUES('default','2025-11-15','m','input_tokens',10);
INSERT INTO usage VALUES('default','2025-11-15','m','turns',1);

CREATE TABLE waits (
    run TEXT NOT NULL,
    path TEXT NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    since REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_by_time ON waits (session, kind, since, run, path);

CREATE VIEW journal AS
SELECT
    run,
    seq,
    at,
    ifnull((SELECT name FROM event_types WHERE event_types.id = each.type), type) AS type,
    path,
    iif(typeof(settles) = 'integer', path, settles) AS settles,
    CASE
        WHEN typeof(data) <> 'text' THEN
            (SELECT CAST(blobs.data AS TEXT) FROM blobs WHERE blobs.hash = each.data)
        WHEN data LIKE char(1) || '%' THEN
            '{"node_id":"'
            || replace(replace(
                substr(data, 2),
                char(3), '","success":true,"duration_ms":'),
                char(4), ',"result":{"success":true,"output":')
            || ',"attributes":{}}}'
        WHEN data LIKE char(2) || '%' THEN
            '{"node_id":"' || replace(replace(substr(data, 2), char(3), '","hash":"'), char(4), '","input":') || '}'
        ELSE data
    END AS data
FROM (
    SELECT
        run,
        iif(is_first, seq - 1, seq) AS seq,
        iif(is_first, first_at, at) AS at,
        iif(is_first, first_type, type) AS type,
        iif(is_first, first_path, path) AS path,
        iif(is_first, first_settles, settles) AS settles,
        iif(is_first, first_data, data) AS data
    FROM journals
    CROSS JOIN events ON journal = journals.id
    CROSS JOIN (SELECT 1 AS is_first UNION ALL SELECT 0) ON first_type IS NOT NULL OR NOT is_first
) AS each;
CREATE VIEW remote_agent_workflow_runs AS
SELECT
    journals.run AS id,
    workflow AS workflow_name,
    conversation AS conversation_id,
    NULL AS codebase_id,
    (
        SELECT count(DISTINCT substr(path, 1, instr(path || '~', '~') - 1)) FROM journal
        WHERE journal.run = journals.run
            AND type IN ('node_completed', 'step_completed')
            AND settles IS NOT NULL
            AND path NOT LIKE '/%/%'
            AND (path NOT LIKE '%~%' OR path LIKE '%~again%') -- a check is no step, another try is the same
            AND data ->> '$.success'
    ) AS current_step_index,
    CASE
        WHEN state = 'completed' THEN 'completed'
        WHEN state IN ('failed', 'cancelled') THEN 'failed'
        ELSE 'running'
    END AS status,
    (
        SELECT CAST(data ->> '$.input' AS TEXT) FROM journal
        WHERE journal.run = journals.run AND seq = 1 AND type = 'workflow_started'
    ) AS user_message,
    CASE
        WHEN state IN ('failed', 'cancelled') THEN json_object('error', coalesce(
            (
                SELECT nullif(ifnull(data ->> '$.error', data ->> '$.reason'), '') FROM journal
                WHERE journal.run = journals.run AND type = 'workflow_' || state
                ORDER BY seq DESC LIMIT 1
            ),
            state
        ))
        ELSE '{}'
    END AS metadata,
    strftime('%Y-%m-%dT%H:%M:%fZ', started, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended, 'unixepoch') AS completed_at
FROM runs JOIN journals USING (id);

pragma user_version=9;
pragma application_id=1315271286;

COMMIT TRANSACTION;
