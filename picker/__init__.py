"""The endpoint picker: answers a gateway's question which model server should get a request.

`app` wires one replica and owns its tasks; `picking` walks one request from parsed to answered; `core` decides;
`serving`, `requests`, `events`, `workers` and `admin` are the edges. Several equal replicas decide like one through
`stateplane`; they find one another and their workers through `discovery`.
"""
